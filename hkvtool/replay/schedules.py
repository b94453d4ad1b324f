"""One order of a window's ops: what its reads get, and how it is written down.

A read fails where it gets the bytes of another write than it got when the trace was recorded: the
same request would then compute from other bytes. Where two writes race and nothing in the window
reads what they write, what they leave counts as read: whoever comes later gets it. Nothing of an
engine's numerics is claimed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hkvtool.model.errors import HkvError
from hkvtool.replay.outcomes import Outcomes
from hkvtool.replay.window import Op, Touch, Window

Source = frozenset[tuple[int, int, int]]
"""What a read gets of one block: first slot, end, and the op that wrote there (-1: none here)."""

_UNWRITTEN = -1
_CHOICE = re.compile(r"(\d+)>(\d+)")
_FORM = re.compile(r"([0-9a-f]{8}):((?:\d{1,9}>\d{1,9})?(?:\.\d{1,9}>\d{1,9})*)", re.ASCII)


@dataclass(frozen=True)
class Failure:
    """The first read of a schedule that gets what it must not."""

    reader: Op | None
    """None: nobody reads it in the window; it is what is left in the end."""
    touch: Touch
    due: Op | None
    """The op whose bytes it got when recorded; None: what was there before the window."""
    found: Op | None


class Bytes:
    """Who wrote what, as a schedule goes."""

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], list[tuple[Touch, int]]] = {}

    def read(self, touch: Touch) -> Source:
        """What a read gets: each slot from the last write that touched it."""
        out: list[tuple[int, int, int]] = []
        holes = [(touch.first, touch.end)]
        for wrote, op in reversed(self._written.get(touch.place, ())):
            if not holes:
                break
            if not wrote.meets(touch):
                continue
            left: list[tuple[int, int]] = []
            for first, end in holes:
                low, high = max(first, wrote.first), min(end, wrote.end)
                if low >= high:
                    left.append((first, end))
                    continue
                out.append((low, high, op))
                left += [(first, low)] if first < low else []
                left += [(high, end)] if high < end else []
            holes = left
        out.extend((first, end, _UNWRITTEN) for first, end in holes)
        return frozenset(out)

    def write(self, touch: Touch, op: int) -> None:
        self._written.setdefault(touch.place, []).append((touch, op))


class Runner:
    """Runs orders of one window against what was recorded."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.ran = 0
        self._due: dict[int, list[Source]] = {}
        bytes_ = Bytes()
        for op in window.ops:
            self._due[op.index] = [bytes_.read(touch) for touch in op.touches if not touch.write]
            self._write(op.touches, op, bytes_)
        self.changed: list[str] = []
        """What the allocator decided otherwise in the last run, where that is not forced."""
        self._left = {touch: bytes_.read(touch) for touch in _unread(window)}

    def run(self, order: Sequence[int]) -> Failure | None:
        """The first failing read of an order, or None."""
        self.ran += 1
        ops, bytes_ = self.window.ops, Bytes()
        outcomes = None if self.window.forced else Outcomes(ops)
        for index in order:
            op = ops[index]
            now: Iterable[tuple[Touch, Touch | None]] = ((touch, touch) for touch in op.touches)
            if outcomes is not None:
                outcomes.take(op)
                now = outcomes.touches(op)
                self.changed = outcomes.changed
            made = list(now)
            reads = [(told, at) for told, at in made if not told.write]
            for (touch, at), due in zip(reads, self._due[index], strict=True):
                found = due if at is None else bytes_.read(at)
                if found != due:
                    return self._failure(op, touch, due, found)
            self._write((at for _, at in made if at is not None), op, bytes_)
        for touch, due in self._left.items() if outcomes is None else ():
            found = bytes_.read(touch)
            if found != due:
                return self._failure(None, touch, due, found)
        return None

    @staticmethod
    def _write(touches: Iterable[Touch], op: Op, bytes_: Bytes) -> None:
        for touch in touches:
            if touch.write:
                bytes_.write(touch, op.index)

    def _failure(self, op: Op | None, touch: Touch, due: Source, found: Source) -> Failure:
        def writer(one: Source, other: Source) -> Op | None:
            index = max((op for _, _, op in one - other), default=_UNWRITTEN)
            return None if index == _UNWRITTEN else self.window.ops[index]

        return Failure(op, touch, writer(due, found), writer(found, due))


def _unread(window: Window) -> list[Touch]:
    """What two racing writes write, and no op of the window reads."""
    reads = [touch for op in window.ops for touch in op.touches if not touch.write]
    out: list[Touch] = []
    for a, b in window.races:
        for one in window.ops[a].touches:
            for other in window.ops[b].touches:
                if one.write and other.write and one.meets(other):
                    if not any(one.meets(read) or other.meets(read) for read in reads):
                        out.append(other)
    return out


def enabled(window: Window, done: int) -> list[int]:
    """Ops that may run next, in recorded order: each lane's next, if all it needs is done."""
    out: list[int] = []
    for lane in window.lanes:
        left = lane & ~done
        if left:
            index = (left & -left).bit_length() - 1
            before = window.ops[index].before
            if before & done == before:
                out.append(index)
    out.sort()
    return out


def directed(window: Window, first: int, second: int) -> list[int]:
    """The recorded order but for `second`, which comes before `first` with what it needs."""
    ahead = window.ops[second].before
    early = [i for i in range(first) if not ahead >> i & 1]
    needed = [i for i in range(second) if ahead >> i & 1]
    start = sorted(early + [i for i in needed if i < first])
    placed = [*start, *(i for i in needed if i > first), second]
    rest = [i for i in range(len(window.ops)) if i not in set(placed)]
    return [*placed, *rest]


def spell(window: Window, order: Sequence[int]) -> str:
    """A schedule as a short text: where it runs another op than the first that could run."""
    done, parts = 0, []
    for step, index in enumerate(order):
        if index != enabled(window, done)[0]:
            parts.append(f"{step}>{index}")
        done |= 1 << index
    return f"{_mark(window)}:{'.'.join(parts)}"


def unspell(window: Window, text: str) -> list[int]:
    """The order that a text stands for. Raises HkvError where it is none of this window."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise HkvError(f"{text!r} is no schedule", hint="as `hkvtool explore` prints it")
    if match[1] != _mark(window):
        raise HkvError(
            f"schedule {text!r} is of another window",
            hint="give the trace, and the finding, block or request, that it was found with",
        )
    choices = {int(step): int(index) for step, index in _CHOICE.findall(match[2])}
    if max(choices, default=0) >= len(window.ops):
        raise HkvError(f"schedule {text!r} has more steps than the {len(window.ops)} of its window")
    order: list[int] = []
    done = 0
    for step in range(len(window.ops)):
        can = enabled(window, done)
        index = choices.get(step, can[0])
        if index not in can:
            raise HkvError(f"schedule {text!r} runs op {index} before it can")
        order.append(index)
        done |= 1 << index
    return order


def _mark(window: Window) -> str:
    """What a schedule holds for: these ops, in this order, on these lanes."""
    text = repr([(op.pos, op.lane, op.before) for op in window.ops])
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def fingerprint(window: Window) -> str:
    """What verdicts hold for: the same, and which bytes the ops touch."""
    ops = [
        (op.pos, op.event.ev, op.lane, op.before, sorted(op.books), op.touches) for op in window.ops
    ]
    text = repr((window.forced, ops, window.conflicts))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
