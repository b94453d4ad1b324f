"""The rules: one module a family, and the check that runs them."""

from hkvtool.analyzers.check import IMPLEMENTED, check

__all__ = ["IMPLEMENTED", "check"]
