"""Device work on real caches: layouts as rows of bytes, and what is done with them."""

from hkvtool.kernels.rows import Page, Rows, ordered_page, page_of, plain_page, split_page
from hkvtool.kernels.stamps import Stamp, pack, read, told

__all__ = [
    "Page", "Rows", "Stamp", "ordered_page", "pack", "page_of", "plain_page", "read",
    "split_page", "told",
]  # fmt: skip
