"""Which blocks are fingerprinted: a share of all, by hash, and all of what somebody looks for."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

FINGERPRINT, MATCH = "HKV_FINGERPRINT", "HKV_FINGERPRINT_MATCH"

_WHOLE = 1 << 32


class ChoiceError(ValueError):
    """A choice that makes no sense; says which."""


@dataclass(frozen=True)
class Choice:
    """`rate` from 0 to 1. Requests are named by id (a pattern), by tenant (cache salt or adapter)
    or by the token ids that their prompt begins with."""

    rate: float = 0.0
    requests: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    prefixes: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of_environment(environ: Mapping[str, str] = os.environ) -> Choice:
        """As HKV_FINGERPRINT and HKV_FINGERPRINT_MATCH say. Raises ChoiceError."""
        return Choice.of(environ.get(FINGERPRINT, ""), environ.get(MATCH, ""))

    @staticmethod
    def of(share: str, match: str) -> Choice:
        """`share` is off, a rate or all; `match` is ``request=ID;tenant=NAME;prefix=1,2,3``, each
        as often as needed. Raises ChoiceError."""
        named: dict[str, list[Any]] = {"request": [], "tenant": [], "prefix": []}
        for part in filter(None, match.split(";")):
            kind, equals, value = part.strip().partition("=")
            if kind not in named or not equals or not value:
                raise ChoiceError(f"{part!r} names no request=ID, tenant=NAME or prefix=1,2,3")
            if kind == "prefix":
                pieces = value.split(",")
                if not all(p.strip().isdecimal() for p in pieces):
                    raise ChoiceError(f"{part!r}: a prefix is token ids, as prefix=1,2,3")
                named[kind].append(tuple(int(p) for p in pieces))
            else:
                named[kind].append(value)
        return Choice(
            _rate(share), tuple(named["request"]), tuple(named["tenant"]), tuple(named["prefix"])
        )

    @property
    def any(self) -> bool:
        return self.rate > 0 or self.targeted

    @property
    def targeted(self) -> bool:
        return bool(self.requests or self.tenants or self.prefixes)

    def samples(self, name: bytes) -> bool:
        """Whether content of this hash is in the share: of equal content always the same."""
        return self.rate >= 1 or (self.rate > 0 and zlib.crc32(name) < self.rate * _WHOLE)

    def wants(self, ids: Sequence[str], tenants: Sequence[str], tokens: Sequence[int]) -> bool:
        """Whether a request is one of those looked for."""
        if any(fnmatchcase(i, pattern) for i in ids for pattern in self.requests):
            return True
        if any(t in self.tenants for t in tenants):
            return True
        return any(tuple(tokens[: len(prefix)]) == prefix for prefix in self.prefixes)


def _rate(text: str) -> float:
    if text in ("", "off"):
        return 0.0
    if text == "all":
        return 1.0
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ChoiceError(f"{FINGERPRINT}={text}: neither off, nor all, nor a rate as 0.01")
    return rate
