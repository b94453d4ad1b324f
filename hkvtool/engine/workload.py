"""Request traces in the Mooncake format, read as arrivals with a chain of prefix nodes.

A trace gives no tokens, only an id for each block of a prompt (512 tokens unless a record says
`block_size`). Two prompts hold the same tokens up to the end of a block exactly where their ids
agree up to there, so the chain of ids is interned as nodes of a trie, and a node stands for
everything up to its end.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from hkvtool.model.errors import HkvError

TOKEN_BITS = 22
"""Token positions fit this many bits (4,194,304); keys and stamps are packed with it."""

OWN = 1 << 30
"""Content ids from here on are a request's own tokens: what it generated, shared with nobody."""

SALT_SHIFT = 32
"""Above any node and any own content."""

_MAX_LINE = 64 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it arrives, how long it is, and what its tokens are.

    `nodes[i]` is the content of tokens [i*unit, (i+1)*unit) of the prompt; what the request
    generates has content `own`.
    """

    id: str
    arrival: int
    """Nanoseconds since the start of the trace."""
    prompt: int
    output: int
    nodes: tuple[int, ...]
    unit: int
    own: int
    salt: int = 0
    """A tenant's own key space: equal tokens under another salt are other content."""

    def content(self, token: int) -> int:
        """What the token at this position is: equal values mean equal tokens up to it."""
        node = self.nodes[token // self.unit] if token < self.prompt else self.own
        return self.salt << SALT_SHIFT | node

    def key(self, end: int) -> int:
        """The content hash of the prefix [0, end). A block that ends at `end` is known by it."""
        return self.content(end - 1) << TOKEN_BITS | end

    def keys(self, indices: Iterable[int], size: int) -> list[int]:
        """The keys of blocks of `size` tokens by their index, all at once."""
        nodes, unit, prompt, own = self.nodes, self.unit, self.prompt, self.own
        salt = self.salt << SALT_SHIFT + TOKEN_BITS
        ends = [(index + 1) * size for index in indices]
        return [
            salt | (nodes[(end - 1) // unit] if end <= prompt else own) << TOKEN_BITS | end
            for end in ends
        ]  # fmt: skip

    @property
    def total(self) -> int:
        return self.prompt + self.output


_FORM = (
    "a workload has a JSON object a line with `timestamp`, `input_length`, `output_length` and "
    "`hash_ids`"
)


def read_workload(path: Path, requests: int | None = None) -> Iterator[Request]:
    """The requests of a trace (`.jsonl` or `.gz`), in file order, the first `requests` of them.

    Raises HkvError where the file cannot be read or a record is not a request: a trace with
    records left out would be another workload.
    """
    return islice(_requests(path), requests)


def _requests(path: Path) -> Iterator[Request]:
    trie: dict[tuple[int, str | int], int] = {}
    for index, (number, record) in enumerate(_records(path)):
        where = f"{path}:{number}"
        unit = _count(record.get("block_size", 512), "block_size", where)
        prompt = _count(record.get("input_length"), "input_length", where)
        output = record.get("output_length", 1)
        if output != 0:
            output = _count(output, "output_length", where)
        if prompt + output >= 1 << TOKEN_BITS:
            raise HkvError(
                f"a request of {prompt + output:,} tokens", where=where,
                hint=f"requests of up to {(1 << TOKEN_BITS) - 1:,} tokens can be run",
            )  # fmt: skip
        ids = record.get("hash_ids")
        if not isinstance(ids, list) or not all(
            isinstance(i, (int, str)) and not isinstance(i, bool) for i in ids
        ):
            raise HkvError("`hash_ids` is not a list of ids", where=where)
        if len(ids) != -(-prompt // unit):
            raise HkvError(
                f"{len(ids)} hash_ids for {prompt} tokens in blocks of {unit}", where=where,
                hint="the block size is the record's `block_size`, 512 where it has none",
            )  # fmt: skip
        nodes: list[int] = []
        node = -1
        for i in ids:
            node = trie.setdefault((node, i), len(trie))
            nodes.append(node)
        arrival = _arrival(record.get("timestamp", 0), where)
        yield Request(f"r{index}", arrival, prompt, output, tuple(nodes), unit, OWN + index)


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with _open(path) as stream:
            number = 0
            while line := stream.readline(_MAX_LINE + 1):
                number += 1
                where = f"{path}:{number}"
                if len(line) > _MAX_LINE:
                    raise HkvError(f"a line of more than {_MAX_LINE:,} bytes", where=where)
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError) as e:
                    raise HkvError(f"not JSON: {e}", where=where, hint=_FORM) from None
                if not isinstance(record, dict):
                    raise HkvError("not a JSON object", where=where, hint=_FORM)
                yield number, record
    except FileNotFoundError:
        raise HkvError(
            "no such workload", where=str(path),
            hint="without --workload, the one that comes with hkvtool is taken",
        ) from None  # fmt: skip
    except (OSError, EOFError, gzip.zlib.error) as e:  # type: ignore[attr-defined]
        raise HkvError(f"the workload cannot be read: {e}", where=str(path)) from None


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _count(value: Any, key: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise HkvError(f"`{key}` is {value!r}, not a positive integer", where=where)
    return value


def _arrival(value: Any, where: str) -> int:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not 0 <= value < 1e12 or math.isnan(value):
        raise HkvError(f"`timestamp` is {value!r}, not milliseconds from 0 on", where=where)
    return int(value * 1_000_000)
