"""What an allocator has to offer so that the kit can drive it, and what it is told of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hkvtool.engine.allocator import Emit
from hkvtool.engine.geometry import Preset

Ranges = Mapping[str, tuple[int, int]]
"""Token ranges [start, end) by table, which goes by the name of its first group."""


@dataclass(frozen=True)
class Prompt:
    """One request: its tokens, of which the first `prompt` are its prompt and the others what it
    will generate. Two prompts share their first n tokens where those are equal."""

    id: str
    tokens: tuple[int, ...]
    prompt: int


@dataclass(frozen=True)
class Match:
    """What a lookup found: the position at which every group can resume, and the blocks that each
    table brings there, in token order. `hit` is how far each group would have come by itself."""

    at: int
    blocks: Mapping[str, Sequence[int]] = field(default_factory=dict)
    hit: Mapping[str, int] = field(default_factory=dict)


class Allocator(Protocol):
    """An allocator for one geometry, with a pool of blocks of one size; block 0 is the null block.

    It is given `tell`, and calls it for what it does, when it does it, as ``tell("alloc",
    req="r1", group="full", blocks=[4, 5], tokens=[0, 16])``: `alloc`, `touch`, `free`, `publish`,
    `unpublish`, `slide` and `reset` are its to tell. What a step reads and writes the kit tells.
    """

    def geometry(self) -> Preset:
        """The model's geometry as the allocator lays it out: its strides, offsets and page sizes
        are what the model's kernels will meet."""

    def lookup(self, prompt: Prompt, known: int) -> Match:
        """The match of the first `known` tokens, at most `known` − 1 of them; changes nothing."""

    def resume(self, prompt: Prompt, match: Match) -> None:
        """Make the blocks of a match the request's, with a reference on each; called for every
        request before its first `allocate`, also where nothing matched."""

    def allocate(self, prompt: Prompt, ranges: Ranges) -> bool:
        """Have the request hold a block for each token of these ranges: all, or none and False."""

    def table(self, prompt: Prompt) -> Mapping[str, Mapping[int, int]]:
        """The request's block tables as a step gets them: block by index, which is the token
        position divided by the block's tokens."""

    def publish(self, prompt: Prompt, written: Ranges, done: int) -> None:
        """The step that wrote these ranges is known to be done, and the first `done` tokens are
        computed: what is complete may be found by others, and what no token from `done` on needs
        may go."""

    def free(self, prompt: Prompt) -> None:
        """The request holds nothing any more."""

    def evict(self, count: int) -> None:
        """Drop the content of some free blocks, as a fuller pool would."""

    def to_clear(self) -> Sequence[int]:
        """Blocks taken since the last call that held another form, and have to be cleared before
        anybody reads them."""


Make = Callable[[Preset, int, Emit], Allocator]
"""Makes an allocator for a geometry and so many blocks, which tells what it does."""
