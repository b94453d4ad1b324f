"""Transfers under way: which blocks, for whom, and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .tables import Table

if TYPE_CHECKING:
    from .requests import Request


@dataclass
class Part:
    """One transfer event pair: blocks of one group, or of one layer of it."""

    handle: str
    group: str
    blocks: list[int]
    peers: list[int]
    layer: int | None = None


@dataclass
class Job:
    """Transfers that begin and end together, for the blocks of one store or one load."""

    kind: str
    parts: list[Part]
    row: Request
    after: int
    """Steps up to this one may still read or write the blocks: begin when they are retired."""
    due: int
    begun: bool = False

    @property
    def blocks(self) -> int:
        return sum(len(p.blocks) for p in self.parts)


@dataclass
class Storing(Job):
    table: Table | None = None
    names: list[str] = field(default_factory=list)


@dataclass
class Loading(Job):
    at: int = 0
    found: dict[str, dict[int, int]] = field(default_factory=dict)
    """Blocks by table and index that were cached on the device."""
    loaded: dict[str, dict[int, int]] = field(default_factory=dict)
    resumed: bool = False
    layers: int = 0
    step: int | None = None
