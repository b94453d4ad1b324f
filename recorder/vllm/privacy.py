"""Names that reveal nothing: content hashes, salts and adapters are keyed before they leave.

An engine's block hash is a function of the prompt; who knows a prompt could look for it in a
trace. With a key of the recording's own nobody without it can, and two recordings under one key
still compare.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b

Name = Callable[[bytes], str]
"""Hexadecimal digits for a value, sixteen at least: `Recording.keyed`."""

_TAIL = 8
"""An engine may publish the last eight bytes of its hash as an integer: those are what is keyed,
so that a KV event names a block as the hooks do."""

_KEPT = 1 << 18


class Keyed:
    """Names under one key: 62-bit integers for hashes, short text for everything else."""

    def __init__(self, name: Name | None = None) -> None:
        self._name = name or _random_key()
        self.known: dict[bytes, int] = {}
        """Names by the last bytes of what they stand for; emptied, never replaced."""

    def hash(self, digest: bytes) -> int:
        """The name of a content hash, whole or its last eight bytes."""
        tail = digest[-_TAIL:]
        found = self.known.get(tail)
        if found is None:
            if len(self.known) >= _KEPT:
                self.known.clear()
            found = self.known[tail] = int(self._name(tail)[:16], 16) >> 2
        return found

    def text(self, value: str) -> str:
        """The name that stands for a tenant, a salt or an adapter."""
        return self._name(value.encode("utf-8", "replace"))[:16]


def names_under(key: bytes) -> Name:
    """Names under a key: those that a recording under the same key has."""
    return lambda value: blake2b(value, digest_size=8, key=key).hexdigest()


def _random_key() -> Name:
    return names_under(os.urandom(16))
