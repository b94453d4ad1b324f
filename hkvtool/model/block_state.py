"""What is known of one block at one moment: the article's record."""

from __future__ import annotations

from dataclasses import dataclass

from hkvtool.model.forms import Form


@dataclass(frozen=True, slots=True)
class CacheBlockState:
    """One block of one cache group at one position of a trace.

    The first five fields are the article's. `version` counts the content inside one
    `generation` (allocations of the block); `recoverable` says whether a request could resume
    from the block as it stands, and where it could not, `why_not` is the rule that says so.
    `tokens` is the range its slots stand for, `written` how many of them hold content,
    `last_touch` the position of the last event that named the block. `ref_count` is the
    engine's own count; `owner` the request or holder that took it last.
    """

    block_id: int
    form: Form
    version: int
    recoverable: bool
    last_touch: int
    pool: str = ""
    group: str = ""
    generation: int = 0
    ref_count: int = 0
    tokens: tuple[int, int] | None = None
    written: int = 0
    published: str | None = None
    residency: str = "resident"
    owner: str | None = None
    pins: int = 0
    why_not: str | None = None
    uncertain: bool = False
