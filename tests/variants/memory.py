"""What the bytes would be: the accesses of a trace run on a memory, reads held against the truth.

An oracle of its own for the engine: it knows nothing of hashes, references or edges. A slot
holds (position, hash of the tokens up to it); a read is right when every slot that a request's
blocks hold for positions it is certain of has the content that the request computes there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .requests import Request

Event = dict[str, Any]
Slots = dict[int, tuple[int, str]]


class Memory:
    """Bytes of every block of every group, as the accesses in line order leave them."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.rows = {r.name: r for r in requests}
        self.bytes: dict[tuple[str, int], Slots] = {}
        self.forms: dict[str, Event] = {}
        self.begun: dict[Any, Event] = {}
        self.zeros: dict[str, list[str]] = {}
        self.reads = 0
        self._known: dict[tuple[str, int], str] = {}

    def _truth(self, req: str, position: int) -> str | None:
        row = self.rows[req]
        if position >= len(row.tokens):
            return None
        if (req, position) not in self._known:
            self._known[req, position] = row.hash(position + 1, "")
        return self._known[req, position]

    def run(self, events: Sequence[Event], late: bool) -> Iterator[tuple[int, str]]:
        """(line, what is wrong) of every read of other bytes than the request's own.

        `late`: the lines of a step stand behind what the host did after its dispatch.
        """
        for n, e in _as_executed(events) if late else enumerate(events, 1):
            ev = e["ev"]
            if ev == "group":
                self.forms[e["group"]] = e
                self.zeros.setdefault(e["pool"], []).append(e["group"])
            elif ev == "alloc":
                # A request relies only on slots that were filled since; older bytes are noise.
                for group in self.zeros[self.forms[e["group"]]["pool"]]:
                    for block in e["blocks"]:
                        self.bytes[group, block] = {}
            elif ev == "zero":
                for group in self.zeros[e["pool"]]:
                    for block in e["blocks"]:
                        self.bytes[group, block] = {}
            elif ev in ("write", "seal", "index") and not e.get("pad"):
                self._write(e)
            elif ev == "copy":
                for a, b in zip(e["src"], e["dst"], strict=True):
                    self.bytes[e["group"], b] = dict(self.bytes.get((e["group"], a), {}))
            elif ev in ("store_begin", "load_begin"):
                self.begun[e["handle"]] = e
            elif ev in ("store_end", "load_end") and e.get("ok", True):
                self._move(self.begun[e["handle"]])
            elif ev == "use" and not e.get("pad"):
                yield from ((n, why) for why in self._read(e))

    def _write(self, e: Event) -> None:
        group = self.forms[e["group"]]
        size = group["block_tokens"]
        a, b = e["tokens"]
        if group["form"] == "recurrent":
            self.bytes[e["group"], e["blocks"][0]] = {
                0: (b - 1, self._truth(e["req"], b - 1) or "")
            }
            return
        for i, block in enumerate(e["blocks"], a // size):
            slots = self.bytes.setdefault((e["group"], block), {})
            for t in range(max(a, i * size), min(b, (i + 1) * size)):
                slots[t % size] = (t, self._truth(e["req"], t) or f"draft of {e['req']}")

    def _move(self, e: Event) -> None:
        tier = e.get("to") or e.get("from")
        far = f"{e['group']}.{tier}"
        for block, peer in zip(e["blocks"], e["peer"], strict=True):
            near, there = (e["group"], block), (far, peer)
            if e["ev"] == "store_begin":
                self.bytes[there] = dict(self.bytes.get(near, {}))
            else:
                self.bytes[near] = dict(self.bytes[there])

    def _read(self, e: Event) -> Iterator[str]:
        self.reads += 1
        group = self.forms[e["group"]]
        full = 1 if group["form"] == "recurrent" else group["block_tokens"]
        for n, block in enumerate(e["blocks"]):
            slots = self.bytes.get((e["group"], block), {})
            if not slots:
                yield f"{e['group']} block {block} holds nothing"
            if 0 < n < len(e["blocks"]) - 1 and len(slots) < full:
                yield f"{e['group']} block {block} is read and not full"
            for position, found in slots.values():
                truth = self._truth(e["req"], position)
                if truth is not None and found != truth and "draft" not in found:
                    yield f"{e['group']} block {block} holds {found} at {position} of {e['req']}"


def _as_executed(events: Sequence[Event]) -> Iterator[tuple[int, Event]]:
    """Lines with each step's accesses right behind its dispatch: where its lane runs them."""
    steps: dict[int, list[tuple[int, Event]]] = {}
    for n, e in enumerate(events, 1):
        if "step" in e and e["ev"] not in ("dispatch", "retire"):
            steps.setdefault(e["step"], []).append((n, e))
    for n, e in enumerate(events, 1):
        if e["ev"] == "dispatch":
            yield n, e
            yield from steps.get(e["step"], ())
        elif "step" not in e or e["ev"] == "retire":
            yield n, e
