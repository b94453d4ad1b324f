"""Event numbers as plain integers, for loops that compare numbers."""

from __future__ import annotations

from hkvtool.model.events import EVENTS

(TRACE, EVIDENCE, STATE, POOL, GROUP, KERNEL, LIMITS, ALLOC, TOUCH, FREE, PUBLISH, UNPUBLISH,
 SLIDE, REMAP, RESET, PIN, UNPIN, WRITE, SEAL, INDEX, ZERO, COPY, ROLLBACK, BUFFER, DISPATCH,
 RETIRE, LOOKUP, RESUME, USE, SELECT, STORE_BEGIN, LOAD_BEGIN, STORE_END, LOAD_END, LEASE, SIGNAL,
 WAIT, ADMIT, REFUSE, PREEMPT, ABORT, FINISH, CAPTURE, LAUNCH, REBASE, WEIGHTS, DROPPED, WIRE,
 FINGERPRINT) = (EVENTS[name].code for name in (
    "trace", "evidence", "state", "pool", "group", "kernel", "limits", "alloc", "touch", "free",
    "publish", "unpublish", "slide", "remap", "reset", "pin", "unpin", "write", "seal", "index",
    "zero", "copy", "rollback", "buffer", "dispatch", "retire", "lookup", "resume", "use",
    "select", "store_begin", "load_begin", "store_end", "load_end", "lease", "signal", "wait",
    "admit", "refuse", "preempt", "abort", "finish", "capture", "launch", "rebase", "weights",
    "dropped", "wire", "fingerprint",
))  # fmt: skip

CONTROL = frozenset({TRACE, EVIDENCE, STATE, POOL, GROUP, LIMITS, REMAP, REBASE, WEIGHTS, DROPPED})
"""Rare events that declare or rearrange; they are folded one at a time, between batches."""

FOLDED = (
    ALLOC, TOUCH, FREE, PUBLISH, UNPUBLISH, SLIDE, RESET, PIN, UNPIN, WRITE, SEAL, INDEX, ZERO,
    COPY, ROLLBACK, DISPATCH, USE, STORE_BEGIN, LOAD_BEGIN, STORE_END, LOAD_END, PREEMPT, ABORT,
    FINISH,
)  # fmt: skip
"""Events that change the state of blocks, declarations aside."""
