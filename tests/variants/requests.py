"""Requests of the correct engine, and what a step computes for them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .tables import Holding
from .tape import Event

if TYPE_CHECKING:
    from .jobs import Loading


@dataclass
class Request:
    """One request: what it must compute, and which blocks it holds."""

    name: str
    tokens: list[int]
    prompt: int
    target: int
    """Length at which it is finished."""
    salt: str = ""
    state: str = "waiting"
    next: int = 0
    """Tokens whose KV is scheduled."""
    done: int = 0
    """Tokens whose KV is known to be right."""
    epoch: int = 0
    """Counts its preemptions: what an older step computed for it no longer counts."""
    held: dict[str, Holding] = field(default_factory=dict)
    loading: Loading | None = None
    avoids_tier: bool = False
    weights: int = 1
    keyed: bool = False

    @property
    def key(self) -> list[str] | None:
        if not self.keyed:
            return None
        return [f"weights={self.weights}", *([f"lora={self.salt}"] if self.salt else [])]

    def hash(self, upto: int, table: str) -> str:
        """The prefix hash; a key that holds more inputs gives another one."""
        inputs = (self.tokens[:upto], self.salt, self.key)
        return hashlib.sha1(repr(inputs).encode()).hexdigest()[:10]


@dataclass
class Item:
    """What a step computes for one request: tokens [p, q), those before `sure` for certain."""

    row: Request
    epoch: int
    p: int
    q: int
    sure: int
    lines: list[Event] = field(default_factory=list)
    """Its writes, where they had to be known before the step was complete."""


@dataclass
class Step:
    number: int
    items: list[Item]
