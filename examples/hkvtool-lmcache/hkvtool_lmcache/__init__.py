"""Records LMCache's local CPU backend; found by hkvtool under the name `lmcache`."""

from __future__ import annotations

from hkvtool_lmcache.adapter import ADAPTER

__all__ = ["ADAPTER"]
