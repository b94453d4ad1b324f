"""Listening over real sockets on the loopback, through a way that loses, doubles and reorders."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from hkvtool.model.errors import HkvError
from hkvtool.recorder.kv_listener import Bad, Listener, Source
from hkvtool.recorder.kv_sequence import Apply, Lost, Restart, Step

zmq = pytest.importorskip("zmq")

Told = list["Step | Bad"]
END = b"\xff" * 8
_STAMPS = count(1)


class Publisher:
    """The publisher's end of the protocol: a PUB socket, and a ROUTER for the replay."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], topic: bytes = b"kv") -> None:
        self.topic = topic
        # As a PUB socket, and it says who has subscribed.
        self.live = context.socket(zmq.XPUB)
        self.router = context.socket(zmq.ROUTER)
        self.port = self.live.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.buffer: list[bytes] = []

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def replay(self) -> str:
        return f"tcp://127.0.0.1:{self.replay_port}"

    def publish(self, *, lost: bool = False, payload: bytes | None = None) -> bytes:
        """A batch with the next number, which may be lost on the way."""
        data = f"{next(_STAMPS)}".encode() if payload is None else payload
        self.buffer.append(data)
        if not lost:
            self.send(len(self.buffer) - 1)
        return data

    def send(self, number: int) -> None:
        self.live.send_multipart([self.topic, number.to_bytes(8, "big"), self.buffer[number]])

    def restart(self) -> None:
        self.buffer = []

    def answer(self, *, topics: bool) -> None:
        """Answer what is asked, as vLLM does, with or without the topic before each batch."""
        while self.router.poll(0):
            client, _, start = self.router.recv_multipart()
            before = [client, b"", self.topic] if topics else [client, b""]
            for number, data in enumerate(self.buffer):
                if number >= int.from_bytes(start, "big"):
                    self.router.send_multipart([*before, number.to_bytes(8, "big"), data])
            end = [client, b"", b"", END, b""] if topics else [client, b"", END, b""]
            self.router.send_multipart(end)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


@contextmanager
def heard(publisher: Publisher, told: Told, **options: object) -> Iterator[Callable[[int], None]]:
    """A listener that runs; what is yielded waits until so many things were told."""
    done = threading.Event()
    replays = [publisher.replay] if options.pop("replay", False) else []
    topics = bool(options.pop("topics", True))
    # However slow this machine is, nothing is given up by itself.
    options.setdefault("patience", 100.0)
    stamp = lambda data: float(data) if data.isdigit() else None  # noqa: E731
    with Listener([publisher.endpoint], replays=replays, stamp=stamp, **options) as listener:  # type: ignore[arg-type]

        def take(source: Source, step: Step | Bad) -> None:
            told.append(step)

        thread = threading.Thread(target=listener.run, args=(take, done.is_set))
        thread.start()

        def wait(number: int) -> None:
            until = time.monotonic() + 60
            while len(told) < number and time.monotonic() < until:
                publisher.answer(topics=topics)
                time.sleep(0.002)
            assert len(told) >= number, told

        try:
            # What is sent before the subscription has arrived is not heard.
            assert publisher.live.poll(60_000) and publisher.live.recv() == b"\x01"
            if replays and not options.get("as_received"):
                # It asks for what was before: nothing.
                assert publisher.router.poll(60_000)
                publisher.answer(topics=topics)
            yield wait
        finally:
            done.set()
            thread.join(60)
            assert not thread.is_alive()
        listener.end(take)


def applied(told: Told) -> list[int]:
    return [step.number for step in told if isinstance(step, Apply)]


def bad(told: Told) -> int:
    return sum(isinstance(step, Bad) for step in told)


def test_batches_come_with_number_and_payload(context: object) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told) as wait:
        sent = [publisher.publish() for _ in range(5)]
        wait(5)
    assert [(s.number, s.payload) for s in told] == list(enumerate(sent))


@pytest.mark.parametrize("topics", [True, False])
def test_what_was_lost_is_caught_up_with_in_order(context: object, topics: bool) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told, replay=True, topics=topics) as wait:
        for number in range(40):
            publisher.publish(lost=number in (3, 4, 17, 30))
        publisher.publish()
        wait(41)
    assert applied(told) == list(range(41)) and not any(isinstance(s, Lost) for s in told)


def test_doubles_and_reordering_change_nothing(context: object) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told) as wait:
        publisher.publish()
        for number in range(1, 13, 2):
            publisher.publish(lost=True)
            publisher.publish(lost=True)
            for each in (number + 1, number, number, number + 1):
                publisher.send(each)
        wait(13)
    assert applied(told) == list(range(13)) and len(told) == 13


def test_without_a_replay_what_was_lost_is_told(context: object) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told, patience=0.1) as wait:
        for number in range(6):
            publisher.publish(lost=number in (2, 3))
        wait(5)
    assert told[2] == Lost(2, 3) and applied(told) == [0, 1, 4, 5]


@pytest.mark.parametrize("replay", [True, False])
def test_a_restart_is_seen(context: object, replay: bool) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told, replay=replay) as wait:
        for _ in range(4):
            publisher.publish()
        wait(4)
        publisher.restart()
        for _ in range(3):
            publisher.publish()
        wait(8)
    assert told[4] == Restart() and applied(told) == [0, 1, 2, 3, 0, 1, 2]


def test_as_received_nothing_is_put_right(context: object) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told, as_received=True, replay=True) as wait:
        for _ in range(3):
            publisher.publish(lost=True)
        for number in (0, 2, 1, 1):
            publisher.send(number)
        wait(4)
    assert applied(told) == [0, 2, 1, 1]


def test_topics_are_publishers_of_their_own(context: object) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told) as wait:
        publisher.publish()
        publisher.topic = b"other"
        publisher.send(0)
        publisher.topic = b"kv"
        publisher.publish()
        wait(3)
    assert applied(told) == [0, 0, 1]


HOSTILE = (
    [b""], [b"kv"], [b"kv", b"1234567"], [b"kv", b"123456789", b"x"], [b"kv", b"\xff" * 8, b"x"],
    [b"", b"", b"", b"", b""], [b"\xff" * 5000, b"\x80" + b"\0" * 7, b"x"], [b"kv"] * 300,
)  # fmt: skip


def test_a_message_that_is_no_batch_is_counted_and_the_stream_goes_on(context: object) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told) as wait:
        publisher.publish()
        for frames in HOSTILE:
            publisher.live.send_multipart(list(frames))
        publisher.publish()
        wait(2 + len(HOSTILE))
    assert applied(told) == [0, 1] and bad(told) == len(HOSTILE)


def test_topics_without_number_do_not_fill_the_memory(
    context: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hkvtool.recorder.kv_listener.MOST_TOPICS", 10)
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]
    with heard(publisher, told) as wait:
        publisher.publish()
        for number in range(50):
            publisher.topic = f"t{number}".encode()
            publisher.send(0)
        wait(51)
    assert len(applied(told)) == 10 and bad(told) == 41


@pytest.mark.parametrize(
    "answer", [[b""], [b"x", b"y"], [b"", b"k", b"short", b"x"], [b"", b"k"] * 9]
)
def test_an_answer_that_is_none_holds_nothing_up(context: object, answer: list[bytes]) -> None:
    publisher, told = Publisher(context), []  # type: ignore[arg-type, var-annotated]

    def lie(*, topics: bool) -> None:
        while publisher.router.poll(0):
            client = publisher.router.recv_multipart()[0]
            publisher.router.send_multipart([client, *answer])

    publisher.answer = lie  # type: ignore[method-assign]
    with heard(publisher, told, replay=True, patience=0.2):
        for _ in range(3):
            publisher.publish()
        until = time.monotonic() + 60
        while len(applied(told)) < 3 and time.monotonic() < until:
            lie(topics=True)
            time.sleep(0.01)
    assert applied(told) == [0, 1, 2]


@pytest.mark.parametrize("address", ["tcp://", "tcp://127.0.0.1", "nonsense://x"])
def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(HkvError, match="cannot connect"):
        Listener([address])


def test_more_replay_sockets_than_endpoints_are_refused() -> None:
    with pytest.raises(HkvError, match="2 replay sockets for 1"):
        Listener(["tcp://127.0.0.1:1"], replays=["tcp://127.0.0.1:2", "tcp://127.0.0.1:3"])
