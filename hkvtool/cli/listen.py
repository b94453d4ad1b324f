"""`hkvtool listen`: the KV events that engines publish, recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.amounts import DURATION, KEEP, MAX_SIZE, seconds, size
from hkvtool.cli.recorded import ending, folder_of, tell_kept
from hkvtool.cli.status_line import StatusLine
from hkvtool.cli.traces import print_table
from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.importers.listening import KvStream
    from hkvtool.recorder.kv_listener import Bad, Listener, Source
    from hkvtool.recorder.kv_sequence import Counts, Step
    from hkvtool.recorder.settings import Settings

_TOLD_PROBLEMS = 5
_TOLD_ROWS = 50
_RING_BYTES = 64 << 20


def command(
    endpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="ENDPOINT...",
            help="Where engines publish, e.g. tcp://127.0.0.1:5557; several also by commas.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to: .duckdb, or .hkv for a recording.")
    ] = Path("trace.duckdb"),
    replay: Annotated[
        list[str] | None,
        typer.Option(
            "--replay",
            metavar="ENDPOINT",
            help="Their replay sockets, in order: what was missed is asked for there.",
        ),
    ] = None,
    topic: Annotated[
        str, typer.Option("--topic", help="Only topics that begin so; else all.")
    ] = "",
    duration: DURATION = None,
    max_size: MAX_SIZE = None,
    keep: KEEP = None,
    patience: Annotated[
        str, typer.Option("--patience", help="How long a gap may close before it counts as lost.")
    ] = "2s",
    as_received: Annotated[
        bool,
        typer.Option(
            "--as-received",
            help="Put nothing in order and catch up with nothing: what a plain consumer gets.",
        ),
    ] = False,
    hash_key: Annotated[
        Path | None,
        typer.Option("--hash-key", metavar="FILE", help="Key of the hashes; else a random one."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing trace.")] = False,
) -> int:
    """Record the KV events that vLLM, SGLang, Mooncake or TensorRT-LLM publish over ZeroMQ.

    Batches are put in the publisher's order, what comes twice is left out, and what was missed is
    asked for at the replay socket, also what was published before. A publisher that is started
    anew is followed. Such a stream tells which hashes can be hit, by group and tier, and nothing of
    blocks, references, steps or requests: rules about those are not evaluable.

    Exits with 3 where nothing was recorded, or not all of it can be read.
    """
    from hkvtool.importers.kv_batch import batch_time
    from hkvtool.importers.listening import KvStream
    from hkvtool.model.recording import SWITCH
    from hkvtool.recorder.folder import Folder
    from hkvtool.recorder.kv_listener import Listener
    from hkvtool.recorder.launcher import SealerProcess
    from hkvtool.recorder.outcome import Off
    from hkvtool.recorder.recording import Recording
    from hkvtool.recorder.sealing import Bounds
    from hkvtool.recorder.vllm.privacy import Keyed

    addresses, replays = _addresses(endpoints), _addresses(replay or [])
    if not addresses:
        raise HkvError("no endpoint is named", hint="write tcp://HOST:PORT or ipc://PATH")
    _need_msgpack()
    lasts = seconds(duration, "--duration")
    waits = seconds(patience, "--patience") or 0.0
    bounds = Bounds(size(max_size, "--max-size"), seconds(keep, "--keep"))
    place = folder_of(output, force=force)
    with Listener(
        addresses, replays=replays, topic=topic, patience=waits, as_received=as_received,
        stamp=batch_time,
    ) as listener:  # fmt: skip
        folder = Folder.make(place, _settings(hash_key), force=force)
        if isinstance(folder, Off):
            raise folder.error()
        recording = Recording.join(folder.path)
        if isinstance(recording, Off):
            folder.discard()
            raise recording.error()
        stream = KvStream(Keyed(recording.keyed), as_received=as_received)
        recorder = _Recorder(recording.emit_dict, stream)
        recording.emit_dict(stream.begin(addresses))
        sealer = SealerProcess(folder.path, bounds, folder.descriptors)
        until = None if lasts is None else monotonic() + lasts
        status = StatusLine()

        def stopped() -> bool:
            status.tell(sealer.look())
            full = os.path.exists(os.path.join(folder.path, SWITCH))
            return full or (until is not None and monotonic() >= until)

        with status.shown(), suppress(KeyboardInterrupt):
            # From here on Ctrl-C is how it ends.
            print(f"hkvtool: listening on {', '.join(map(shown, addresses))}", file=sys.stderr)
            listener.run(recorder.take, stopped)
        try:
            listener.end(recorder.take)
            recording.close()
            trouble = sealer.end()
            folder.end()
        except KeyboardInterrupt:
            tell_kept(folder.path, folder.path, output)
            raise
    if not stream.batches:
        raise _nothing(folder.path, addresses, recorder)
    if trouble:
        print(f"hkvtool: {trouble}; what it left is in the rings", file=sys.stderr)
    _tell(listener, stream, recorder, bool(replays))
    return ending(folder.path, output, force=force)


class _Recorder:
    """Writes down what the listener tells."""

    def __init__(self, emit: Callable[[Mapping[str, Any]], bool], stream: KvStream) -> None:
        self._emit, self._stream = emit, stream
        self.bad: list[str] = []
        self.bad_count = 0

    def take(self, source: Source, step: Step | Bad) -> None:
        """One step of one publisher."""
        from hkvtool.recorder.kv_listener import Bad
        from hkvtool.recorder.kv_sequence import Apply, Lost

        actor = source.name
        if isinstance(step, Apply):
            for line in self._stream.batch(actor, step.number, step.payload):
                if line["ev"] == "dropped":
                    self._problem(actor, line["reason"], line["count"])
                self._emit(line)
        elif isinstance(step, Lost):
            self._emit(self._stream.lost(actor, step.first, step.last))
        elif isinstance(step, Bad):
            self._problem(actor, step.problem, 1)
            self._emit({"ev": "dropped", "count": 1, "actor": actor, "reason": step.problem})
        else:
            self._emit(self._stream.restart(actor))

    def _problem(self, actor: str, text: str, count: int) -> None:
        self.bad_count += count
        if len(self.bad) < _TOLD_PROBLEMS:
            self.bad.append(f"{actor}: {text}")


def _addresses(texts: list[str]) -> list[str]:
    """Endpoints, given apart or by commas. Raises HkvError."""
    found = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for address in found:
        transport, colon, place = address.partition("://")
        try:
            place.encode()
            _, _, port = place.rpartition(":")
            possible = transport == "ipc" or port == "*" or 0 < int(port) < 1 << 16
        except ValueError:
            possible = False
        if not (colon and place and possible) or transport not in ("tcp", "ipc"):
            raise HkvError(
                f"{address!r} is no endpoint", hint="write tcp://HOST:PORT or ipc://PATH"
            )
        if "*" in place:
            raise HkvError(
                f"{address!r} is what a publisher binds to", hint="name the host, tcp://HOST:PORT"
            )
    return found


def _need_msgpack() -> None:
    from importlib.util import find_spec

    from hkvtool.recorder.kv_listener import HINT, MISSING

    if find_spec("msgpack") is None:
        raise HkvError(MISSING, hint=HINT)


def _settings(hash_key: Path | None) -> Settings:
    """A ring that takes whole replays at once, since nothing else needs the memory."""
    from hkvtool.recorder.settings import Settings, fresh_key, read_key

    key = fresh_key() if hash_key is None else read_key(str(hash_key))
    return Settings(ring_bytes=_RING_BYTES, max_bytes=4 * _RING_BYTES, key=key)


def _tell(listener: Listener, stream: KvStream, recorder: _Recorder, replays: bool) -> None:
    """What came, by publisher, group and tier, and what it cannot show."""
    say = partial(print, file=sys.stderr)
    lines = stream.lines
    kinds = ", ".join(f"{lines.kinds[kind]:,} {kind}" for kind in ("stored", "removed", "cleared"))
    say(f"hkvtool: {stream.batches:,} batches; {kinds}")
    for publisher in listener.publishers():
        said = _course(publisher.sequence.counts)
        if said:
            say(f"hkvtool: {shown(publisher.source.name)}: {said}")
    for text in recorder.bad:
        say(f"hkvtool: unreadable: {shown(text)}")
    if recorder.bad_count > len(recorder.bad):
        say(f"hkvtool: {recorder.bad_count:,} such in all, each a `dropped` event of the trace")
    rows = list(lines.rows())[:_TOLD_ROWS]
    if rows:
        headings = ("publisher", "group", "medium", "stored", "removed", "held", "not seen stored")
        with redirect_stdout(sys.stderr):
            print_table(headings, [(a, g or "-", m or "-", *counts) for a, g, m, *counts in rows])
    for text in _more(lines.grouped > 0, replays):
        say(f"hkvtool: {text}")


def _course(counts: Counts) -> str:
    """What happened on the way, where anything did."""
    began = counts.first or 0
    facts = [
        (began, f"began at batch {began:,}: what was published before is unknown"),
        (counts.replayed, f"{counts.replayed:,} batches from the replay socket"),
        (counts.reordered, f"{counts.reordered:,} put in order"),
        (counts.twice, f"{counts.twice:,} came twice"),
        (counts.late, f"{counts.late:,} came too late"),
        (counts.lost, f"{counts.lost:,} never came (HKV903)"),
        (counts.restarts, f"started anew {counts.restarts:,} times"),
    ]
    return "; ".join(text for count, text in facts if count)


def _more(grouped: bool, replays: bool) -> Iterator[str]:
    """What to switch on to see more."""
    if not replays:
        yield (
            "no replay socket: what is missed stays lost; start the engine with "
            "`replay_endpoint` in --kv-events-config and name it with --replay"
        )
    if not grouped:
        yield (
            "the events name no groups, so windows and recurrent states cannot be told apart: "
            "vLLM names them from 0.24 on, SGLang does not"
        )
    yield (
        "not on the wire: blocks, references, steps, requests, reads; "
        "`hkvtool record -- vllm serve ...` sees them"
    )


def _nothing(folder: str, addresses: list[str], recorder: _Recorder) -> TraceError:
    """What came that is no batch holds nothing: no trace of it is worth its place."""
    from hkvtool.model.recording import remove_recording
    from hkvtool.recorder.kv_listener import unanswered

    remove_recording(folder)
    if recorder.bad_count:
        return TraceError(
            f"{recorder.bad_count:,} messages came, and none is a batch of KV events: "
            + "; ".join(dict.fromkeys(recorder.bad)),
            hint="name the endpoints of --kv-events-config, and with --replay its replay_endpoint",
        )
    return TraceError(
        f"nothing was published on {', '.join(addresses)}",
        where="; ".join(f"{a}: {why}" for a in addresses if (why := unanswered(a))),
        hint="vLLM and SGLang publish with --kv-events-config "
        """'{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557"}'""",
    )
