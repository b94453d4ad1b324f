"""A second fold that stands where a first one does and goes its own way from there.

Going back in a short trace is a copy that was kept and the events behind it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hkvtool.state import arrays as a
from hkvtool.state.fold import Fold, Transfer


def copied(fold: Fold) -> Fold:
    """A plain fold in the same state. The two share their names, which only ever grow."""
    other = Fold(fold.names)
    same: dict[int, Any] = {}
    other.declared = deepcopy(fold.declared, same)
    other._pools = deepcopy(fold._pools, same)
    other.transfers = {
        name: Transfer(t.begin, deepcopy(t.group, same), deepcopy(t.far, same))
        for name, t in fold.transfers.items()
    }
    other.block_of = list(fold.block_of)
    other.gaps = dict(fold.gaps)
    other.doubted = fold.doubted
    other._slots = [dict(slots) for slots in fold._slots]
    other._beyond = [dict(slots) for slots in fold._beyond]
    other._arena_kept = fold._arena_kept
    other.st = a.Arrays(*(list(column) for column in fold.st))
    # Names may have come to be since, in the fold that goes on.
    requests = fold.names.count("req")
    other.make_room("req", requests)
    other.make_room("req_table", requests * max(1, other.st.h[a.TABLES]))
    other.make_room("hash", fold.names.count("hash"))
    other.make_room("handle", fold.names.count("handle"))
    return other


def size_of(fold: Fold) -> int:
    """Bytes that a copy of a plain fold takes, about."""
    return 8 * sum(map(len, fold.st)) + 200 * len(fold.block_of)
