"""The compiled part of the recorder, where there is one: `_ring.c`, six times as fast.

It is built where a compiler is at hand and needed nowhere: what it does stands in Python beside it,
which runs where it is missing or ``HKV_NATIVE=0``.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

VARIABLE = "HKV_NATIVE"


def _load() -> tuple[Any, str]:
    if os.environ.get(VARIABLE, "").strip().lower() in ("0", "off", "no"):
        return None, f"{VARIABLE}={os.environ[VARIABLE]}"
    try:
        return import_module("hkvtool.recorder._ring"), ""
    except Exception as e:
        # Not built, or for another machine: that must never reach an engine.
        return None, f"{type(e).__name__}: {e}"


compiled, missing = _load()
"""The extension module, or None and why it is not used."""
