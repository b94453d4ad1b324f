"""Names that reveal nothing: content hashes, salts and adapters are keyed before they leave.

An engine's block hash is a function of the prompt; who knows a prompt could look for it in a
trace. With a key of the recording's own nobody without it can, and two recordings under one key
still compare.
"""

from __future__ import annotations

import os
from hashlib import blake2b

_TAIL = 8
"""An engine may publish the last eight bytes of its hash as an integer: those are what is keyed,
so that a KV event names a block as the hooks do."""


class Keyed:
    """Names under one key: 62-bit integers for hashes, short text for everything else."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = os.urandom(16) if key is None else blake2b(key, digest_size=16).digest()
        self._known: dict[bytes, int] = {}

    def hash(self, digest: bytes) -> int:
        """The name of a content hash, whole or its last eight bytes."""
        tail = digest[-_TAIL:]
        found = self._known.get(tail)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            made = blake2b(tail, digest_size=8, key=self.key).digest()
            found = self._known[tail] = int.from_bytes(made, "little") >> 2
        return found

    def text(self, value: str) -> str:
        """The name that stands for a tenant, a salt or an adapter."""
        return blake2b(value.encode("utf-8", "replace"), digest_size=6, key=self.key).hexdigest()


_KEPT = 1 << 18
