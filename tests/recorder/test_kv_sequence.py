"""The order in which batches are applied, whatever the way does to them; a clock that we own."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.recorder.kv_sequence import Apply, Lost, Restart, Sequence, Step

Batch = tuple[int, bytes]


def payload(number: int, run: int = 0) -> bytes:
    """A batch that says when it was published: later in a later run."""
    return struct.pack(">d", run * 1000 + number)


def stamp(data: bytes) -> float:
    return float(struct.unpack(">d", data)[0])


def sequence(*, can_replay: bool = False) -> Sequence:
    return Sequence(patience=1.0, can_replay=can_replay, stamp=stamp)


def applied(steps: list[Step]) -> list[int]:
    return [s.number for s in steps if isinstance(s, Apply)]


class Publisher:
    """What a publisher has in its buffer, and how it answers."""

    def __init__(self, keeps: int = 1000) -> None:
        self.keeps = keeps
        self.run = 0
        self.sent: list[Batch] = []

    def publish(self) -> Batch:
        batch = len(self.sent), payload(len(self.sent), self.run)
        self.sent.append(batch)
        return batch

    def restart(self) -> None:
        self.run += 1
        self.sent = []

    def answer(self, start: int) -> list[Batch]:
        return [b for b in self.sent[-self.keeps :] if b[0] >= start]


def serve(taken: Sequence, publisher: Publisher, now: float) -> list[Step]:
    """Answer whatever the sequence wants to be answered."""
    steps: list[Step] = []
    while taken.wanted is not None:
        start = taken.wanted
        taken.asked()
        for number, data in publisher.answer(start):
            steps += taken.replayed(number, data, now)
        steps += taken.replay_ended(now)
    return steps


def test_in_order_each_is_applied_at_once() -> None:
    taken = sequence()
    for number in range(5, 9):
        assert applied(taken.arrive(number, payload(number), 0.0)) == [number]
    assert taken.counts.first == 5 and taken.counts.lost == 0


def test_what_comes_twice_is_left_out() -> None:
    taken = sequence()
    for number in (0, 1, 1, 0, 2):
        taken.arrive(number, payload(number), 0.0)
    assert (taken.counts.applied, taken.counts.twice, taken.counts.restarts) == (3, 2, 0)


def test_a_gap_closes_when_the_late_one_comes_in_time() -> None:
    taken = sequence()
    steps = taken.arrive(0, payload(0), 0.0)
    for number in (2, 3, 1, 4):
        steps += taken.arrive(number, payload(number), 0.1)
    assert applied(steps) == [0, 1, 2, 3, 4]
    assert (taken.counts.reordered, taken.counts.lost) == (1, 0)
    assert taken.due(10.0) == []


def test_without_a_replay_a_gap_is_lost_when_patience_ends() -> None:
    taken = sequence()
    taken.arrive(0, payload(0), 0.0)
    assert taken.arrive(4, payload(4), 0.5) == []
    assert taken.due(1.4) == []
    assert taken.due(1.6) == [Lost(1, 3), Apply(4, payload(4))]
    assert taken.arrive(2, payload(2), 2.0) == [] and taken.counts.late == 1
    assert taken.counts.restarts == 0


def test_a_replay_comes_before_what_was_live_meanwhile() -> None:
    taken, publisher = sequence(can_replay=True), Publisher()
    sent = [publisher.publish() for _ in range(8)]
    steps = taken.arrive(*sent[0], 0.0)
    steps += taken.arrive(*sent[5], 0.1)
    assert taken.wanted == 0
    steps += taken.arrive(*sent[6], 0.1) + serve(taken, publisher, 0.2)
    assert applied(steps) == list(range(8))
    # The last one was in the buffer already; on the live socket it comes a second time.
    assert taken.arrive(*sent[7], 0.3) == [] and taken.counts.twice == 1
    assert taken.counts.lost == 0


def test_what_was_published_before_is_asked_for() -> None:
    taken, publisher = sequence(can_replay=True), Publisher(keeps=4)
    sent = [publisher.publish() for _ in range(10)]
    taken.begin(0.0)
    steps = taken.arrive(*sent[9], 0.0) + serve(taken, publisher, 0.1)
    assert applied(steps) == [6, 7, 8, 9] and taken.counts.first == 6 and taken.counts.lost == 0


def test_a_replay_that_nobody_answers_holds_nothing_up_for_long() -> None:
    taken = sequence(can_replay=True)
    taken.begin(0.0)
    assert taken.arrive(3, payload(3), 0.2) == []
    assert applied(taken.due(1.1)) == [3]
    assert applied(taken.arrive(4, payload(4), 1.2)) == [4]


def test_what_is_lost_last_is_asked_for_once_it_is_quiet() -> None:
    taken, publisher = sequence(can_replay=True), Publisher()
    sent = [publisher.publish() for _ in range(4)]
    taken.arrive(*sent[0], 0.0)
    taken.arrive(*sent[1], 0.5)
    assert taken.due(1.4) == [] and taken.wanted is None
    assert taken.due(1.6) == [] and taken.wanted == 1
    assert applied(serve(taken, publisher, 1.7)) == [2, 3]
    # Asked again when nothing comes, ever more rarely.
    assert taken.due(2.8) == [] and applied(serve(taken, publisher, 2.8)) == []
    assert taken.due(4.7) == [] and taken.wanted is None
    publisher.publish()
    assert taken.due(4.9) == [] and applied(serve(taken, publisher, 4.9)) == [4]
    taken.arrive(*publisher.publish(), 9.5)
    taken.due(10.6)
    assert taken.wanted == 5 and taken.counts.lost == 0


def test_who_is_silent_for_long_is_asked_now_and_then() -> None:
    taken, publisher, asked = sequence(can_replay=True), Publisher(), 0
    taken.arrive(*publisher.publish(), 0.0)
    for second in range(3600):
        taken.due(float(second))
        asked += taken.wanted is not None
        assert serve(taken, publisher, float(second)) == []
    assert 60 <= asked <= 70


def test_what_is_published_after_an_empty_answer_and_not_heard_is_asked_for() -> None:
    taken, publisher = sequence(can_replay=True), Publisher()
    taken.begin(0.0)
    assert serve(taken, publisher, 0.1) == []
    publisher.publish()
    taken.due(1.2)
    assert applied(serve(taken, publisher, 1.2)) == [0]


def test_a_publisher_that_was_started_anew_unheard_is_known_by_what_it_answers() -> None:
    taken, publisher = sequence(can_replay=True), Publisher()
    for _ in range(3):
        taken.arrive(*publisher.publish(), 0.0)
    publisher.restart()
    for _ in range(5):
        publisher.publish()
    taken.due(1.1)
    steps = serve(taken, publisher, 1.2)
    assert steps[0] == Restart() and applied(steps) == [0, 1, 2, 3, 4]


def test_without_a_replay_silence_is_silence() -> None:
    taken = sequence()
    taken.arrive(0, payload(0), 0.0)
    assert taken.due(99.0) == [] and taken.wanted is None


def test_a_replay_buffer_that_is_too_short_leaves_the_rest_lost() -> None:
    taken, publisher = sequence(can_replay=True), Publisher(keeps=3)
    sent = [publisher.publish() for _ in range(10)]
    taken.arrive(*sent[0], 0.0)
    steps = taken.arrive(*sent[9], 0.1) + serve(taken, publisher, 0.1)
    assert steps[0] == Lost(1, 6) and applied(steps) == [7, 8, 9]


@pytest.mark.parametrize("can_replay", [False, True])
def test_a_publisher_that_is_started_anew_begins_with_nothing(can_replay: bool) -> None:
    taken, publisher = sequence(can_replay=can_replay), Publisher()
    for _ in range(5):
        taken.arrive(*publisher.publish(), 0.0)
    publisher.restart()
    first, second = publisher.publish(), publisher.publish()
    steps = taken.arrive(*first, 1.0) + serve(taken, publisher, 1.0) + taken.arrive(*second, 1.1)
    assert steps[0] == Restart() and applied(steps) == [0, 1]
    assert taken.counts.restarts == 1 and taken.counts.lost == 0


def test_of_a_restarted_publisher_the_first_batches_are_asked_for_too() -> None:
    taken, publisher = sequence(can_replay=True), Publisher()
    for _ in range(9):
        taken.arrive(*publisher.publish(), 0.0)
    publisher.restart()
    sent = [publisher.publish() for _ in range(4)]
    steps = taken.arrive(*sent[3], 1.0) + serve(taken, publisher, 1.0)
    assert steps[0] == Restart() and applied(steps) == [0, 1, 2, 3]


def test_a_restart_whose_count_has_passed_ours_is_seen_in_the_replay() -> None:
    taken, publisher = sequence(can_replay=True), Publisher()
    for _ in range(3):
        taken.arrive(*publisher.publish(), 0.0)
    publisher.restart()
    sent = [publisher.publish() for _ in range(8)]
    steps = taken.arrive(*sent[7], 1.0) + serve(taken, publisher, 1.0)
    assert steps[0] == Restart() and applied(steps) == list(range(8))
    assert taken.counts.lost == 0


def test_an_answer_longer_than_what_is_held_back_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hkvtool.recorder.kv_sequence.MOST_HELD", 10)
    taken, publisher = sequence(can_replay=True), Publisher()
    sent = [publisher.publish() for _ in range(100)]
    taken.begin(0.0)
    steps = taken.arrive(*sent[99], 0.0) + serve(taken, publisher, 0.1)
    assert applied(steps) == list(range(100)) and taken.counts.lost == 0


def test_an_answer_that_comes_to_a_halt_is_asked_for_again() -> None:
    """A ROUTER drops what its peer is too slow for, in the middle and the end included."""
    taken, publisher = sequence(can_replay=True), Publisher()
    sent = [publisher.publish() for _ in range(10)]
    taken.begin(0.0)
    taken.asked()
    steps = [s for n in (0, 1, 2, 5) for s in taken.replayed(*sent[n], 0.5)]
    assert taken.due(1.0) == [] and taken.wanted is None
    assert taken.due(1.6) == [] and taken.wanted == 2
    steps += serve(taken, publisher, 1.7)
    assert applied(steps) == list(range(10)) and taken.counts.lost == 0
    # One that gets no further is not asked for ever.
    steps = taken.arrive(20, payload(20), 2.0)
    taken.asked()
    assert taken.due(3.1) == [Lost(10, 19), Apply(20, payload(20))]


def test_a_gap_behind_an_answer_is_asked_for_too() -> None:
    taken, publisher = sequence(can_replay=True), Publisher()
    sent = [publisher.publish() for _ in range(10)]
    taken.begin(0.0)
    taken.asked()
    steps = [s for n in range(6) for s in taken.replayed(*sent[n], 0.0)]
    # Published since the answer was made: one was lost, one is held back.
    steps += taken.arrive(*sent[7], 0.0) + taken.replay_ended(0.0)
    assert taken.wanted == 5
    steps += serve(taken, publisher, 0.1)
    assert applied(steps) == list(range(10)) and taken.counts.lost == 0


def test_what_is_held_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hkvtool.recorder.kv_sequence.MOST_HELD", 100)
    taken = sequence()
    taken.arrive(0, payload(0), 0.0)
    steps: list[Step] = []
    for number in range(2, 500):
        steps += taken.arrive(number, payload(number), 0.0)
    assert steps[0] == Lost(1, 1) and applied(steps) == list(range(2, 500))


@given(st.integers(0, 1 << 30), st.booleans(), st.integers(3, 40))
def test_every_disturbance_ends_in_the_publishers_order(
    seed: int, can_replay: bool, count: int
) -> None:
    """Loss, duplication and reordering together: what is applied is ascending, each batch once,
    and with a replay that reaches far enough nothing is missing."""
    rnd = random.Random(seed)
    taken, publisher = sequence(can_replay=can_replay), Publisher()
    taken.begin(0.0)
    way: list[Batch] = []
    steps: list[Step] = []
    now = 0.0
    for _ in range(count):
        now += 0.05
        batch = publisher.publish()
        if rnd.random() < 0.7:
            way.insert(rnd.randrange(max(0, len(way) - 2), len(way) + 1), batch)
        if rnd.random() < 0.2 and publisher.sent:
            way.append(rnd.choice(publisher.sent[-3:]))
        while way and rnd.random() < 0.6:
            steps += taken.arrive(*way.pop(0), now)
        if rnd.random() < 0.5:
            steps += serve(taken, publisher, now)
        steps += taken.due(now)
    for batch in way:
        steps += taken.arrive(*batch, now)
    steps += serve(taken, publisher, now) + taken.end(now)
    numbers = applied(steps)
    assert numbers == sorted(set(numbers))
    assert taken.counts.restarts == 0
    lost = {n for s in steps if isinstance(s, Lost) for n in range(s.first, s.last + 1)}
    assert not lost & set(numbers)
    if numbers:
        assert lost | set(numbers) == set(range(numbers[0], numbers[-1] + 1))
    if can_replay and numbers:
        assert lost == set() and numbers == list(range(numbers[-1] + 1))


@given(st.integers(0, 1 << 30), st.booleans(), st.integers(5, 60))
def test_runs_follow_each_other_whatever_the_way_does(
    seed: int, can_replay: bool, count: int
) -> None:
    """Loss, duplication and restarts, on a way that keeps the order as TCP does: nothing of an
    earlier run is applied after one of a later, and where there is a replay, all of the last run is
    there in the end, if its beginning could be seen at all."""
    rnd = random.Random(seed)
    taken, publisher = sequence(can_replay=can_replay), Publisher()
    taken.begin(0.0)
    way: list[Batch] = []
    steps: list[Step] = []
    now = 0.0
    for _ in range(count):
        now += 0.05
        if rnd.random() < 0.06:
            publisher.restart()
        batch = publisher.publish()
        if rnd.random() < 0.7:
            way += [batch] * rnd.choice((1, 1, 2))
        while way and rnd.random() < 0.6:
            steps += taken.arrive(*way.pop(0), now)
        if rnd.random() < 0.5:
            steps += serve(taken, publisher, now)
        steps += taken.due(now)
    # The last one arrives, a while later.
    for batch in [*way, publisher.publish()]:
        steps += taken.arrive(*batch, now)
    steps += serve(taken, publisher, now) + taken.due(now + 2) + taken.end(now + 2)
    seen: list[tuple[int, int]] = []
    runs = 0
    for step in steps:
        if isinstance(step, Restart):
            runs += 1
        elif isinstance(step, Apply):
            run, number = divmod(int(stamp(step.payload)), 1000)
            assert number == step.number
            seen.append((run, number))
    assert seen == sorted(set(seen)), seen
    assert runs <= publisher.run
    last = [number for run, number in seen if run == publisher.run]
    # A run whose first batches were lost and whose next one has just the number that was due
    # cannot be told from the run before; every other restart is seen.
    if can_replay and last[:1] == [0]:
        assert last == list(range(len(publisher.sent)))
