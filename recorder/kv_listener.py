"""Subscribing to the KV events that engines publish over ZeroMQ.

What is on the socket: three frames, a topic, the batch's number as eight bytes and the batch. A
replay socket is asked with an empty frame and a number, and answers with every batch that it still
has from there on, up to the number -1. Messages are taken as hostile: a message that is no batch is
counted and told, and the stream goes on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.recorder.kv_sequence import MOST_HELD, Apply, Sequence, Step

MAX_MESSAGE_BYTES = 16 << 20
"""ZeroMQ drops the connection of a peer that sends a longer frame, and connects anew."""

MOST_TOPICS = 1024
"""Publishers that are told apart on one endpoint."""

_POLL_MS = 100
_AT_ONCE = 1000
"""Messages taken from one socket before the others, and the clock, have their turn."""

_REACHED = 2.0
"""Seconds in which a peer takes a connection, if it is there."""

_NUMBER_BYTES = 8
_END = b"\xff" * _NUMBER_BYTES
_LARGEST = 1 << 62

MISSING = "pyzmq and msgpack are needed to listen to KV events, and are not installed"
HINT = "pip install 'hkvtool[listen]', or `pip install pyzmq msgpack` beside it"


@dataclass(frozen=True, slots=True)
class Source:
    """A publisher: an endpoint, and a topic where several share it."""

    endpoint: str
    topic: str = ""

    @property
    def name(self) -> str:
        return f"{self.endpoint} {self.topic}".rstrip()


@dataclass(frozen=True, slots=True)
class Bad:
    """A message that is no batch."""

    problem: str


Told = Callable[[Source, "Step | Bad"], None]


@dataclass
class Publisher:
    """A publisher and the order of its batches; `unnamed` until the first batch told its topic."""

    source: Source
    sequence: Sequence
    unnamed: bool = False


@dataclass
class _Endpoint:
    """One endpoint: its sockets, and a publisher for each topic on it."""

    address: str
    live: Any
    replay: Any = None
    publishers: dict[str, Publisher] = field(default_factory=dict)
    replaying: list[Publisher] = field(default_factory=list)


class Listener:
    """Subscribes to `endpoints`; a context, since it holds sockets.

    `replays` are the replay sockets of the first of them, in order. With `as_received` nothing is
    put in order, caught up with or left out: what a consumer gets that applies whatever comes.
    `stamp` reads the time of publication out of a batch. Raises HkvError.
    """

    def __init__(
        self,
        endpoints: list[str],
        *,
        replays: list[str] | None = None,
        topic: str = "",
        patience: float = 2.0,
        as_received: bool = False,
        stamp: Callable[[bytes], float | None] = lambda payload: None,
    ) -> None:
        try:
            import zmq
        except ModuleNotFoundError as e:
            raise HkvError(MISSING, hint=HINT) from e
        self._zmq = zmq
        self._patience, self._as_received, self._stamp = patience, as_received, stamp
        self.endpoints: list[_Endpoint] = []
        self._context = zmq.Context()
        try:
            answers = list(replays or ())
            if len(answers) > len(endpoints):
                raise HkvError(
                    f"{len(answers)} replay sockets for {len(endpoints)} endpoints",
                    hint="--replay lists those of the endpoints, in their order",
                )
            for i, address in enumerate(endpoints):
                replay = answers[i] if i < len(answers) else None
                self.endpoints.append(self._connect(address, replay, topic))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the sockets back. Never waits for a peer."""
        self._context.destroy(linger=0)

    def run(self, told: Told, stopped: Callable[[], bool]) -> None:
        """Tell every step of every publisher until `stopped`."""
        poller = self._zmq.Poller()
        for endpoint in self.endpoints:
            poller.register(endpoint.live, self._zmq.POLLIN)
            if endpoint.replay is not None:
                poller.register(endpoint.replay, self._zmq.POLLIN)
                if not self._as_received:
                    self._publisher(endpoint, "", named=False).sequence.begin(monotonic())
        while not stopped():
            self._ask()
            ready = dict(poller.poll(_POLL_MS))
            for endpoint in self.endpoints:
                # The answers first: what is live waits for them.
                if endpoint.replay in ready:
                    self._drain(endpoint, endpoint.replay, self._answered, told)
                if endpoint.live in ready:
                    self._drain(endpoint, endpoint.live, self._arrived, told)
                for publisher in endpoint.publishers.values():
                    _tell(publisher, publisher.sequence.due(monotonic()), told)

    def end(self, told: Told) -> None:
        """Tell what is still held back, once nothing more will come."""
        for publisher in self.publishers():
            _tell(publisher, publisher.sequence.end(monotonic()), told)

    def publishers(self) -> Iterator[Publisher]:
        """Every publisher seen so far."""
        for endpoint in self.endpoints:
            yield from endpoint.publishers.values()

    def _connect(self, address: str, replay: str | None, topic: str) -> _Endpoint:
        zmq = self._zmq
        live = self._context.socket(zmq.SUB)
        live.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        live.setsockopt(zmq.SUBSCRIBE, topic.encode(errors="surrogateescape"))
        made = _Endpoint(address, live)
        self._to(live, address)
        if replay is not None:
            made.replay = self._context.socket(zmq.DEALER)
            made.replay.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
            # A whole answer comes at once, and what finds no room here is dropped over there.
            made.replay.setsockopt(zmq.RCVHWM, MOST_HELD)
            self._to(made.replay, replay)
        return made

    def _to(self, socket: Any, address: str) -> None:
        try:
            socket.connect(address)
        except self._zmq.ZMQError as e:
            raise HkvError(
                f"cannot connect to {address}: {e}", hint="name it tcp://HOST:PORT or ipc://PATH"
            ) from e

    def _publisher(self, endpoint: _Endpoint, topic: str, *, named: bool = True) -> Publisher:
        found = endpoint.publishers.get(topic)
        unnamed = endpoint.publishers.get("")
        if found is None and unnamed is not None and unnamed.unnamed:
            # It was made to ask for what was before; now its topic is known. What was told under
            # its first name stays so.
            found = endpoint.publishers[topic] = endpoint.publishers.pop("")
            if not found.sequence.counts.applied:
                found.source = Source(endpoint.address, topic)
        if found is None:
            # Only the first can be caught up with: an answer says no more of whose it is.
            replays = endpoint.replay is not None and not endpoint.publishers
            made = Sequence(self._patience, replays and not self._as_received, self._stamp)
            found = endpoint.publishers[topic] = Publisher(Source(endpoint.address, topic), made)
            found.unnamed = not named
        if named:
            found.unnamed = False
        return found

    def _ask(self) -> None:
        for endpoint in self.endpoints:
            for publisher in endpoint.publishers.values():
                wanted = publisher.sequence.wanted
                if wanted is None or endpoint.replay is None:
                    continue
                number = wanted.to_bytes(_NUMBER_BYTES, "big")
                try:
                    endpoint.replay.send_multipart([b"", number], self._zmq.NOBLOCK)
                except self._zmq.Again:
                    # Nobody is there yet: asked again at the next turn, until patience ends.
                    continue
                publisher.sequence.asked()
                endpoint.replaying.append(publisher)

    def _drain(
        self,
        endpoint: _Endpoint,
        socket: Any,
        take: Callable[[_Endpoint, list[bytes], Told], None],
        told: Told,
    ) -> None:
        for _ in range(_AT_ONCE):
            try:
                frames = socket.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            take(endpoint, frames, told)

    def _arrived(self, endpoint: _Endpoint, frames: list[bytes], told: Told) -> None:
        source = Source(endpoint.address)
        if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES:
            sizes = ", ".join(str(len(f)) for f in frames[:4])
            told(source, Bad(f"a message of frames of {sizes} bytes is no batch"))
            return
        topic = frames[0].decode("utf-8", "backslashreplace")[:200]
        number = int.from_bytes(frames[1], "big")
        if number >= _LARGEST:
            told(source, Bad(f"a batch is numbered {number:,}"))
            return
        if topic not in endpoint.publishers and len(endpoint.publishers) >= MOST_TOPICS:
            told(source, Bad(f"there are more than {MOST_TOPICS:,} topics"))
            return
        publisher = self._publisher(endpoint, topic)
        if not self._as_received:
            _tell(publisher, publisher.sequence.arrive(number, frames[2], monotonic()), told)
            return
        counts = publisher.sequence.counts
        counts.applied += 1
        counts.first = number if counts.first is None else counts.first
        told(publisher.source, Apply(number, frames[2]))

    def _answered(self, endpoint: _Endpoint, frames: list[bytes], told: Told) -> None:
        """An answer is a delimiter, perhaps the topic, the number and the batch."""
        if frames and not frames[0]:
            frames = frames[1:]
        if not endpoint.replaying:
            return
        publisher = endpoint.replaying[0]
        if not 2 <= len(frames) <= 3 or len(frames[-2]) != _NUMBER_BYTES:
            told(publisher.source, Bad("an answer to a replay is no batch"))
            return
        if frames[-2] == _END:
            endpoint.replaying.pop(0)
            _tell(publisher, publisher.sequence.replay_ended(monotonic()), told)
            return
        number = int.from_bytes(frames[-2], "big")
        if number >= _LARGEST:
            told(publisher.source, Bad(f"a batch is numbered {number:,}"))
            return
        if publisher.unnamed and len(frames) == 3:
            self._publisher(endpoint, frames[0].decode("utf-8", "backslashreplace")[:200])
        _tell(publisher, publisher.sequence.replayed(number, frames[-1], monotonic()), told)


def unanswered(address: str) -> str:
    """Why nobody can be reached at an endpoint; nothing where somebody can, whoever it is."""
    transport, _, place = address.partition("://")
    try:
        if transport == "ipc":
            with socket.socket(socket.AF_UNIX) as end:
                end.settimeout(_REACHED)
                end.connect(place)
        else:
            host, _, port = place.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _REACHED).close()
    except OSError as e:
        return e.strerror or str(e)
    return ""


def _tell(publisher: Publisher, steps: list[Step], told: Told) -> None:
    for step in steps:
        told(publisher.source, step)
