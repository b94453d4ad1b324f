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


_SELDOM = 60.0
"""Seconds of silence after which it is asked whether there is nothing new, at most."""


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
    `replayed` and `replay_ended`. What is lost last leaves no gap, so after `patience` seconds of
    silence it is asked for, and then ever more rarely. `stamp` reads when a batch was published,
    which tells a restarted publisher's batch from a late one; None where it cannot be read.
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
        self._highest = 0
        self._gave: set[int] = set()
        self._since: float | None = None
        self._seen: OrderedDict[int, bytes] = OrderedDict()
        self._newest: float | None = None
        self._before: float | None = None
        self._began: float | None = None
        self._fresh = False
        self._asked = False
        self._moved = False
        self._quiet_since: float | None = None
        self._quiet_for = self.patience

    def begin(self, now: float) -> None:
        """Ask for what was published before, where somebody can be asked."""
        if self.can_replay:
            self._since = self._quiet_since = now
            self.wanted = 0

    def arrive(self, number: int, payload: bytes, now: float) -> list[Step]:
        """A batch came on the live socket."""
        at = self.stamp(payload)
        if at is not None and self._began is not None and at < self._began:
            # Published before the publisher was started anew.
            self.counts.late += 1
            return []
        self._see(at)
        if self._next is None and self.wanted is None and not self._asked:
            self._next = number
        if self._next is not None and number < self._next:
            return self._behind(number, payload, now)
        return self._take(number, payload, now, replayed=False)

    def replayed(self, number: int, payload: bytes, now: float) -> list[Step]:
        """A batch came as the answer to a replay."""
        self._see(self.stamp(payload))
        if self._next is not None and number < self._next:
            known = self._seen.get(number)
            if known is None or known == _digest(payload):
                return []
            # Another batch than the one we know by this number: the publisher began anew, and its
            # count has passed ours unseen.
            return self._restart(now, payload)
        if self._since is not None:
            self._since = now
        if self._next is None:
            # An answer begins with the oldest that there is.
            self._next = number
            self._forget_earlier(payload)
        return self._take(number, payload, now, replayed=True)

    def replay_ended(self, now: float) -> list[Step]:
        """Everything that the other side still has was sent."""
        self._asked = False
        if self._quiet_since is not None:
            self._quiet_since = now
        if self.wanted is None and self._held and self._moved:
            # What was live meanwhile has a gap of its own, later than what was answered.
            self.wanted = self._before_next()
        return [] if self.wanted is not None else self._give_up(now)

    def due(self, now: float) -> list[Step]:
        """What is to be done because time has passed."""
        if self._since is None:
            self._ask_for_the_last(now)
            return []
        if now - self._since < self.patience:
            return []
        if self._asked and self._moved:
            # The answer came to a halt: a ROUTER drops what its peer is too slow for, the end
            # included. It is asked again, for as long as that gets further.
            self.wanted, self._asked, self._since = self._before_next(), False, now
            return []
        self.wanted, self._asked = None, False
        return self._give_up(now)

    def _ask_for_the_last(self, now: float) -> None:
        """Nothing is missing as far as anybody can see, and nothing comes."""
        if self.can_replay and self._quiet_since is not None:
            if now - self._quiet_since >= self._quiet_for:
                self._quiet_for = min(2 * self._quiet_for, max(_SELDOM, self.patience))
                self._quiet_since = now
                self.wanted, self._since = self._before_next(), now

    def end(self, now: float) -> list[Step]:
        """Nothing more will come."""
        self.wanted, self._asked = None, False
        return self._give_up(now)

    def asked(self) -> None:
        """The replay that was `wanted` is on its way."""
        self.wanted, self._asked, self._moved = None, True, False

    def _see(self, at: float | None) -> None:
        """Remember the latest time of publication, and the one before."""
        self._before = self._newest
        if at is not None and (self._newest is None or at > self._newest):
            self._newest = at

    def _take(self, number: int, payload: bytes, now: float, *, replayed: bool) -> list[Step]:
        held = self._held.get(number)
        if held is not None:
            if held != payload:
                return self._other_run(number, payload, now, replayed=replayed)
            if not replayed:
                self.counts.twice += 1
            return []
        self._quiet_since, self._quiet_for = now, self.patience
        if replayed:
            self._gave.add(number)
        elif self._held and number < self._highest:
            if self._is_after_what_is_held(number, payload):
                return self._other_run(number, payload, now, replayed=False)
            self.counts.reordered += self._next is not None
        self._highest = max(number, self._highest) if self._held else number
        self._held[number] = payload
        self._held_bytes += len(payload)
        steps = list(self._ready())
        if self._held and self._since is None:
            self._since = now
            if self.can_replay and not self._asked:
                self.wanted = self._before_next()
        if len(self._held) > MOST_HELD or self._held_bytes > MOST_HELD_BYTES:
            self.wanted, self._asked = None, False
            steps += self._give_up(now)
        return steps

    def _before_next(self) -> int:
        """Where to ask from: if that batch is not as we know it, the publisher is another."""
        return max(0, (self._next or 0) - 1)

    def _other_run(self, number: int, payload: bytes, now: float, *, replayed: bool) -> list[Step]:
        """Two batches of one number, none applied: what comes now is the newer publisher's."""
        if replayed:
            self._held_bytes += len(payload) - len(self._held[number])
            self._held[number] = payload
            return []
        steps = self._restart(now, payload)
        self._held = {number: payload}
        self._held_bytes, self._highest = len(payload), number
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
        self._moved = True
        self._seen[number] = _digest(payload)
        self._seen.move_to_end(number)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        if number == 0:
            # Whatever was published before is of an earlier run.
            self._began = self.stamp(payload)
        if self._fresh:
            self._fresh = False
            self._forget_earlier(payload)
        if not self._held:
            self.wanted = None
            if not self._asked:
                self._since = None
        return Apply(number, payload, replayed)

    def _forget_earlier(self, payload: bytes) -> None:
        """What was kept back and published before this batch, the oldest of its run, goes."""
        at = self.stamp(payload)
        for number, held in list(self._held.items()):
            published = self.stamp(held)
            if at is not None and published is not None and published < at:
                del self._held[number]
                self._held_bytes -= len(held)

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
        at, before = self.stamp(payload), self._before
        if at is None or before is None:
            newer = known is not None or number == 0
        else:
            newer = at > before
        if not newer:
            self.counts.late += 1
            return []
        steps = self._give_up(now) + self._restart(now, payload)
        return steps + self._take(number, payload, now, replayed=False)

    def _is_after_what_is_held(self, number: int, payload: bytes) -> bool:
        """Whether a batch comes before one kept back by its number and after it by its time: then
        it is of a newer run."""
        following = min((n for n in self._held if n > number), default=None)
        if following is None:
            return False
        at, held = self.stamp(payload), self.stamp(self._held[following])
        return at is not None and held is not None and at > held

    def _restart(self, now: float, payload: bytes) -> list[Step]:
        """The publisher was started anew; `payload` is of its new run, perhaps not its first."""
        self.counts.restarts += 1
        at, before = self.stamp(payload), self._before
        if at is not None:
            # Its first batch came after all that was seen of the run before.
            self._began = before if before is not None and before < at else at
            self._fresh = True
        self._next = 0
        self._seen.clear()
        self._gave.clear()
        self._since = None
        if self.can_replay:
            self._since = self._quiet_since = now
            self.wanted = 0
        return [Restart()]


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=8).digest()
