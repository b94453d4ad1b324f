"""What a person lets through on the map: `group=fa req=r2 layer=3`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkvtool.model.errors import HkvError
from hkvtool.model.rules import RULES
from hkvtool.state import overview as o
from hkvtool.state.fold import Fold
from hkvtool.tui import palette as p

KEYS = ("group", "req", "form", "layer", "rule", "state", "hash")
STATES = ("resumable", "not", "held", "free", "pinned", "recovering", "uncertain", "published")


@dataclass(frozen=True)
class BlockFilter:
    """Conditions that all must hold; empty ones let everything through."""

    text: str = ""
    terms: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)


def parsed(text: str) -> BlockFilter:
    """A filter from what was typed. Raises HkvError."""
    terms: list[tuple[str, str]] = []
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals:
            key, value = _guessed(word)
        if key == "request":
            key = "req"
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]}=?" if near else f"one of {', '.join(KEYS)}"
            raise HkvError(f"there is no filter {key!r}", hint=hint)
        _checked(key, value)
        terms.append((key, value))
    return BlockFilter(text.strip(), tuple(terms))


def _guessed(word: str) -> tuple[str, str]:
    """A bare word: a form, a state, a rule, else a request."""
    if word in [str(f) for f in p.FORMS]:
        return "form", word
    if word in STATES:
        return "state", word
    if word.upper() in RULES:
        return "rule", word.upper()
    return "req", word


def _checked(key: str, value: str) -> None:
    allowed = {
        "form": [str(f) for f in p.FORMS],
        "state": list(STATES),
        "layer": list("123456789"),
    }.get(key)
    if allowed is not None and value not in allowed:
        raise HkvError(f"{key}={value} means nothing", hint=f"one of {', '.join(allowed)}")
    if key == "rule" and _code(value) not in RULES:
        raise HkvError(f"there is no rule {value!r}", hint="see `hkvtool rules`")


def _code(value: str) -> str:
    return "HKV" + value.upper().removeprefix("HKV")


def inside(wanted: BlockFilter, fold: Fold, seen: o.Overview) -> Any:
    """Which blocks a filter lets through, None for all."""
    if not wanted:
        return None
    mask = np.ones(len(seen.blocks), bool)
    for key, value in wanted.terms:
        mask &= _met(key, value, fold, seen)
    return mask


def _met(key: str, value: str, fold: Fold, seen: o.Overview) -> Any:
    flags = seen.flags
    if key == "group":
        group = fold.declared.groups.get(value)
        if group is None:
            return np.zeros(len(flags), bool)
        tables = [g.id for g in fold.declared.mates(group)]
        return np.isin(seen.group, tables)
    if key == "req":
        return _owned(value, fold, seen)
    if key == "form":
        return seen.form == [str(f) for f in p.FORMS].index(value)
    if key == "layer":
        return np.isin(seen.code, [i for i, c in enumerate(o.CODES) if c[3:4] == value])
    if key == "rule":
        return seen.code == o.CODES.index(_code(value))
    if key == "hash":
        return _led_to(value, fold, seen)
    good = seen.recoverable() & (flags & o.KNOWN > 0)
    return {
        "resumable": good,
        "not": ~good,
        "held": flags & o.HELD > 0,
        "free": flags & o.HELD == 0,
        "pinned": flags & o.PINNED > 0,
        "recovering": flags & o.LOADING > 0,
        "uncertain": flags & o.KNOWN == 0,
        "published": flags & o.HASHED > 0,
    }[value]


def _number(fold: Fold, domain: str, value: str) -> int:
    """The number of a name, which may be written as an integer; negative for none."""
    names: list[str | int] = [value]
    if value.isdecimal() and len(value) < 20:
        names.append(int(value))
    return next((n for n in fold.names.find_all(domain, names) if n >= 0), -1)


def _owned(value: str, fold: Fold, seen: o.Overview) -> Any:
    """Blocks that a request took last."""
    number = _number(fold, "req", value)
    return (seen.owner == number) & (number >= 0)


def _led_to(value: str, fold: Fold, seen: o.Overview) -> Any:
    """Blocks that a live hash leads to."""
    number = _number(fold, "hash", value)
    mask = np.zeros(len(seen.blocks), bool)
    if number >= 0:
        found = {int(fold.block_of[slot]) for slot in fold.led_to(number)}
        mask |= np.isin(seen.blocks, list(found))
    return mask
