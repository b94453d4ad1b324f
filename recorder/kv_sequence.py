"""The order in which numbered batches of KV events are applied, whatever order they come in.

A publisher numbers its batches from 0 and keeps the latest ones for a replay. On the way some are
lost, come twice or late, and a publisher that is started anew counts from 0 again. This is the
bookkeeping of one publisher: batches and the clock go in, steps to take come out, in order. No
socket and no clock of its own, so that every order can be tried.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

_REMEMBERED = 1 << 16
"""Batches that are known again when they come twice."""

MOST_HELD = 10_000
MOST_HELD_BYTES = 256 << 20
"""What is kept back while a gap may still close."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Take this batch next."""

    number: int
    payload: bytes
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Batches `first` to `last` never came, and nobody has them any more."""

    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Restart:
    """The publisher was started anew: what it held before is gone."""


Step = Apply | Lost | Restart


@dataclass
class Counts:
    """What came of the batches of one publisher."""

    applied: int = 0
    replayed: int = 0
    twice: int = 0
    reordered: int = 0
    late: int = 0
    lost: int = 0
    restarts: int = 0
    first: int | None = None
    """Number of the first batch ever applied: what was published before is unknown."""


@dataclass
class Sequence:
    """The batches of one publisher.

    `patience` is for how many seconds a gap may close by itself or by a replay. `can_replay` says
    whether somebody can be asked: then `wanted` is the number to ask from, and the answers go to
    `replayed` and `replay_ended`. `stamp` reads when a batch was published, which tells a restarted
    publisher's batch from a late one; None where it cannot be read.
    """

    patience: float = 2.0
    can_replay: bool = False
    stamp: Callable[[bytes], float | None] = lambda payload: None
    counts: Counts = field(default_factory=Counts)
    wanted: int | None = None

    def __post_init__(self) -> None:
        self._next: int | None = None
        self._held: dict[int, bytes] = {}
        self._held_bytes = 0
        self._gave: set[int] = set()
        self._since: float | None = None
        self._seen: OrderedDict[int, bytes] = OrderedDict()
        self._newest: float | None = None
        self._asked = False

    def begin(self, now: float) -> None:
        """Ask for what was published before, where somebody can be asked."""
        if self.can_replay:
            self._since, self.wanted = now, 0

    def arrive(self, number: int, payload: bytes, now: float) -> list[Step]:
        """A batch came on the live socket."""
        if self._next is None and self.wanted is None and not self._asked:
            self._next = number
        if self._next is not None and number < self._next:
            return self._behind(number, payload, now)
        return self._take(number, payload, now, replayed=False)

    def replayed(self, number: int, payload: bytes, now: float) -> list[Step]:
        """A batch came as the answer to a replay."""
        if self._next is not None and number < self._next:
            known = self._seen.get(number)
            if known is None or known == _digest(payload):
                return []
            # Another batch than the one we know by this number: the publisher began anew, and its
            # count has passed ours unseen.
            return self._restart(now)
        if self._since is not None:
            self._since = now
        return self._take(number, payload, now, replayed=True)

    def replay_ended(self, now: float) -> list[Step]:
        """Everything that the other side still has was sent."""
        self._asked = False
        if self.wanted is not None:
            return []
        return self._give_up(now)

    def due(self, now: float) -> list[Step]:
        """What is to be done because time has passed."""
        if self._since is None or now - self._since < self.patience:
            return []
        self.wanted, self._asked = None, False
        return self._give_up(now)

    def end(self, now: float) -> list[Step]:
        """Nothing more will come."""
        self.wanted, self._asked = None, False
        return self._give_up(now)

    def asked(self) -> None:
        """The replay that was `wanted` is on its way."""
        self.wanted, self._asked = None, True

    def _take(self, number: int, payload: bytes, now: float, *, replayed: bool) -> list[Step]:
        held = self._held.get(number)
        if held is not None:
            if held != payload:
                # Two batches of one number, none applied: the newer publisher's is the live one.
                return self._other_run(number, payload, now, replayed)
            if not replayed:
                self.counts.twice += 1
            return []
        if replayed:
            self._gave.add(number)
        elif self._next is not None and self._held and number < min(self._held):
            self.counts.reordered += 1
        self._held[number] = payload
        self._held_bytes += len(payload)
        steps = list(self._ready())
        if self._held and self._since is None:
            self._since = now
            if self.can_replay and self._next is not None:
                # From one before: if that one is not as we know it, the publisher is another.
                self.wanted = max(0, self._next - 1)
        if len(self._held) > MOST_HELD or self._held_bytes > MOST_HELD_BYTES:
            self.wanted, self._asked = None, False
            steps += self._give_up(now)
        return steps

    def _other_run(self, number: int, payload: bytes, now: float, replayed: bool) -> list[Step]:
        if replayed:
            return []
        steps = self._restart(now)
        self._held = {number: payload}
        self._held_bytes = len(payload)
        return steps + list(self._ready())

    def _ready(self) -> Iterator[Step]:
        """What can be applied now, as far as it is without a gap."""
        while self._next is not None and self._next in self._held:
            yield self._apply(self._next)

    def _apply(self, number: int) -> Apply:
        payload = self._held.pop(number)
        self._held_bytes -= len(payload)
        replayed = number in self._gave
        self._gave.discard(number)
        counts = self.counts
        counts.applied += 1
        counts.replayed += replayed
        if counts.first is None:
            counts.first = number
        self._next = number + 1
        self._seen[number] = _digest(payload)
        self._seen.move_to_end(number)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        at = self.stamp(payload)
        if at is not None and (self._newest is None or at > self._newest):
            self._newest = at
        if not self._held:
            self._since = self.wanted = None
        return Apply(number, payload, replayed)

    def _give_up(self, now: float) -> list[Step]:
        """Go on over the gaps: what is held is applied in order."""
        steps: list[Step] = []
        while self._held:
            first = min(self._held)
            if self._next is not None and first > self._next:
                lost = Lost(self._next, first - 1)
                self.counts.lost += lost.count
                steps.append(lost)
            self._next = first
            steps += self._ready()
        self._since = None
        return steps

    def _behind(self, number: int, payload: bytes, now: float) -> list[Step]:
        """A live batch with a number that we are past: the same again, late, or a new publisher."""
        known = self._seen.get(number)
        if known is not None and known == _digest(payload):
            self.counts.twice += 1
            return []
        if known is None and not self._is_newer(payload, number):
            self.counts.late += 1
            return []
        steps = self._give_up(now) + self._restart(now)
        return steps + self._take(number, payload, now, replayed=False)

    def _is_newer(self, payload: bytes, number: int) -> bool:
        at = self.stamp(payload)
        if at is None or self._newest is None:
            return number == 0
        return at > self._newest

    def _restart(self, now: float) -> list[Step]:
        self.counts.restarts += 1
        self._next = 0
        self._seen.clear()
        self._gave.clear()
        self._since = None
        if self.can_replay:
            self.wanted, self._since = 0, now
        return [Restart()]


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=8).digest()
