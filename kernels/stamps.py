"""The stamp: 32 bytes in every stored row that say where the row comes from.

Four 64-bit words: the sequence (a hash of everything the row depends on), the group and the token
position, the generation and version of the block it was first written in, and a check word over
the other three. A row longer than a stamp repeats it from end to end, across all its segments
(data, then scales), so that any byte which is not the row's own shows, and so do bytes shifted
within it.

Stamps prove whose bytes a read got. They say nothing of what a model would compute from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

WORDS = 4
BYTES = 8 * WORDS
TOKEN_BITS = 40
VERSION_BITS = 32

NEVER = 0xA7
"""Every byte of memory that nobody has written."""

FREED = 0x0F4EED0F4EED
"""Flipped in the check word of a row whose block was freed: `poison`."""

_TOKEN = (1 << TOKEN_BITS) - 1
_VERSION = (1 << VERSION_BITS) - 1

# Odd 64-bit constants from the golden ratio and splitmix64, as signed integers.
_MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where one row comes from. `sequence` is a signed 64-bit hash."""

    sequence: int
    group: int
    token: int
    generation: int = 0
    version: int = 0


def pack(sequence: Any, group: Any, token: Any, generation: Any, version: Any) -> torch.Tensor:
    """Stamps as words, ``int64[n, 4]``; each argument a tensor ``int64[n]`` or one number."""
    given = [torch.as_tensor(part, dtype=torch.int64)
             for part in (sequence, group, token, generation, version)]  # fmt: skip
    parts = torch.broadcast_tensors(*given)  # type: ignore[no-untyped-call]
    seq, grp, tok, gen, ver = (p.reshape(-1) for p in parts)
    words = torch.empty((len(seq), WORDS), dtype=torch.int64)
    words[:, 0] = seq
    words[:, 1] = grp << TOKEN_BITS | tok & _TOKEN
    words[:, 2] = gen << VERSION_BITS | ver & _VERSION
    words[:, 3] = check_word(words)
    return words


def check_word(words: torch.Tensor) -> torch.Tensor:
    """The check word of stamps ``int64[n, 4]``; arithmetic wraps."""
    mixed = words[:, 0] * _MIX[0] ^ words[:, 1] * _MIX[1] ^ words[:, 2] * _MIX[2]
    return mixed ^ mixed >> 29 & (1 << 35) - 1


def told(words: Any) -> dict[str, Any]:
    """What one row's four words say, in words: whose bytes they are, or what else they are."""
    row = torch.as_tensor(words, dtype=torch.int64).reshape(1, WORDS).cpu()
    stamp, state = read(row)[0]
    if stamp is None:
        return {"state": state}
    return {
        "state": state, "sequence": stamp.sequence, "group": stamp.group, "token": stamp.token,
        "generation": stamp.generation, "version": stamp.version,
    }  # fmt: skip


def read(words: torch.Tensor) -> list[tuple[Stamp | None, str]]:
    """Each row's stamp, if it holds one, and its state: ``stamped``, ``freed``, ``zero``,
    ``never written`` or ``torn`` (bytes that are no one row's)."""
    check = check_word(words)
    never = int.from_bytes(bytes([NEVER]) * 8, "little", signed=True)
    found: list[tuple[Stamp | None, str]] = []
    for row, good in zip(words.tolist(), check.tolist(), strict=True):
        if not any(row):
            found.append((None, "zero"))
        elif all(word == never for word in row):
            found.append((None, "never written"))
        elif row[3] in (good, good ^ FREED):
            state = "stamped" if row[3] == good else "freed"
            stamp = Stamp(
                row[0], row[1] >> TOKEN_BITS, row[1] & _TOKEN, row[2] >> VERSION_BITS & _VERSION,
                row[2] & _VERSION,
            )  # fmt: skip
            found.append((stamp, state))
        else:
            found.append((None, "torn"))
    return found
