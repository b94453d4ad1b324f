"""The forms in which an engine keeps the same history, and what a block can be for a reader.

Source: trace-format `hkv/1`, section *Forms*.
"""

from __future__ import annotations

from enum import Enum


class Form(str, Enum):
    """Where and how the bytes of a block stand.

    The first five are the article's; `recurrent` is the sixth that real hybrids need: the
    state of an SSM or linear-attention layer, valid at exactly one token position.
    """

    COMPRESSED = "compressed"
    TAIL = "tail"
    SWA = "swa"
    INDEXER = "indexer"
    ON_DISK = "on_disk"
    RECURRENT = "recurrent"

    def __str__(self) -> str:
        return self.value


HOME_FORMS = (Form.COMPRESSED, Form.TAIL, Form.SWA, Form.INDEXER, Form.RECURRENT)
"""Forms a cache group can declare. `on_disk` is never declared: it is what a block becomes
while its bytes are on a lower tier only, or on their way back."""

HISTORY = (Form.COMPRESSED, Form.INDEXER)
"""Forms that need everything from token 0 on, and are good up to where something is missing."""

MEDIA = ("gpu", "cpu", "disk", "remote")
"""Media of a pool. Everything but `gpu` counts as a lower tier."""

ROUTES = ("reuse", "load", "recompute", "decompress", "reindex", "bypass")
"""Recovery routes a resume can state for a group."""

NEEDS: dict[Form, str] = {
    Form.COMPRESSED: (
        "every block of [0, t) resident, complete, published version = written version, "
        "same codec version"
    ),
    Form.TAIL: (
        "the tokens of [t - t mod ratio - overlap, t) in original form or partial state, "
        "of the same sequence"
    ),
    Form.SWA: (
        "the blocks of [max(0, t - window + 1 - slack), t), none overwritten since "
        "(chunked: of [t - t mod window, t); sink: the first tokens too; replayed: nothing)"
    ),
    Form.INDEXER: "rows of [0, t) with kv_version = the served group's version",
    Form.RECURRENT: "a state written at exactly t",
    Form.ON_DISK: "nothing: first a load_end with ok, then the home form's rule",
}
"""What a group of each form needs so that a request can resume at token position t."""
