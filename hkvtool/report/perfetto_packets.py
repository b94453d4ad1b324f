"""A timeline as packets of Perfetto's own protobuf format, by the format's own definitions.

What Chrome's records say by process and thread numbers are named tracks here, so that the viewer
shows no made-up process. Slices that may overlap have a track each, of one name: the viewer draws
such tracks as one, in as many rows as are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import IO, Any

from hkvtool.model.errors import HkvError
from hkvtool.report.perfetto import LANES, Record

_SEQUENCE = 1
"""The one writer of the file, as packets name it."""

_NS = 1000
"""Nanoseconds in the microsecond of Chrome's records."""


class PacketTimeline:
    """Writes each record as one packet, or a slice of known length as two.

    Packets need not be in the order of time: the viewer sorts them, and keeps the order of the
    file where times are equal.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions
        except ImportError as e:
            raise HkvError(
                f"the protobuf encoding needs {(e.name or 'perfetto').partition('.')[0]}, which is "
                "not installed",
                hint="pip install 'hkvtool[perfetto]', or --encoding json",
            ) from None
        self._definitions: Any = definitions
        self._kinds: Any = definitions.TrackEvent
        self._stream = stream
        self._uuids = count(1)
        self._titles: dict[int, int] = {}
        self._tracks: dict[tuple[object, ...], int] = {}
        self._flows: dict[str, int] = {}

    def put(self, record: Record) -> None:
        phase = record["ph"]
        if phase == "M":
            self._named(record)
        elif phase == "X":
            track = self._tracks[LANES, record["tid"]]
            self._event("SLICE_BEGIN", track, record)
            self._event("SLICE_END", track, {"ts": record["ts"] + record["dur"]})
        elif phase in "be":
            self._span(record)
        elif phase == "C":
            self._counters(record)
        else:
            self._arrow(record)

    def end(self, about: Record) -> None:
        track = self._track("about this file", None)
        self._event("INSTANT", track, {"ts": 0.0, "name": "hkvtool", "args": about})

    def _named(self, record: Record) -> None:
        """Title or lane: a track, made when its name is told."""
        pid, tid = record["pid"], record["tid"]
        if record["name"] == "process_name":
            self._titles[pid] = self._track(record["args"]["name"], None, rank=pid)
        elif record["name"] == "thread_name":
            made = self._track(record["args"]["name"], self._titles[pid], rank=tid)
            self._tracks[pid, tid] = made

    def _span(self, record: Record) -> None:
        key = (record["pid"], record["cat"], record["id"])
        if record["ph"] == "b":
            self._tracks[key] = self._track(record["cat"], self._titles[record["pid"]])
            self._event("SLICE_BEGIN", self._tracks[key], record)
        else:
            self._event("SLICE_END", self._tracks.pop(key), {"ts": record["ts"]})

    def _counters(self, record: Record) -> None:
        """Chrome draws several numbers in one track; here each is one below it."""
        pid, name = record["pid"], record["name"]
        for rank, (series, value) in enumerate(record["args"].items()):
            track = self._tracks.get((pid, name, series))
            if track is None:
                above = self._tracks.get((pid, name))
                if above is None:
                    above = self._tracks[pid, name] = self._track(name, self._titles[pid])
                track = self._track(series, above, rank=rank, counts=name)
                self._tracks[pid, name, series] = track
            self._event("COUNTER", track, {"ts": record["ts"]}, value=value)

    def _arrow(self, record: Record) -> None:
        """A moment of a finding on its lane; moments with the finding's number are joined."""
        name = record["name"]
        flow = self._flows.setdefault(record["id"], len(self._flows) + 1)
        track = self._tracks[record["pid"], record["tid"]]
        self._event("INSTANT", track, {"ts": record["ts"], "name": name, "cat": record["cat"]},
                    flow=flow, last=record["ph"] == "f")  # fmt: skip

    def _track(
        self, name: str, parent: int | None, *, rank: int | None = None, counts: str = ""
    ) -> int:
        packet = self._packet()
        told = packet.track_descriptor
        told.uuid = next(self._uuids)
        told.name = _text(name)
        if parent is not None:
            told.parent_uuid = parent
        if rank is not None:
            told.sibling_order_rank = rank
        if counts:
            told.counter.unit_name = "%" if counts.endswith("%") else "blocks"
            told.counter.y_axis_share_key = _text(counts)
        else:
            told.child_ordering = told.EXPLICIT
        self._write(packet)
        made: int = told.uuid
        return made

    def _event(
        self, kind: str, track: int, record: Record, *, value: int | float | None = None,
        flow: int = 0, last: bool = False,
    ) -> None:  # fmt: skip
        packet = self._packet()
        packet.timestamp = round(record["ts"] * _NS)
        event: Any = packet.track_event
        event.type = getattr(self._kinds, f"TYPE_{kind}")
        event.track_uuid = track
        if "name" in record:
            event.name = _text(record["name"])
        if "cat" in record:
            event.categories.append(record["cat"])
        if isinstance(value, int):
            event.counter_value = value
        elif value is not None:
            event.double_counter_value = value
        if flow:
            (event.terminating_flow_ids if last else event.flow_ids).append(flow)
        self._annotate(event, record.get("args", {}))
        self._write(packet)

    def _annotate(self, event: Any, args: Mapping[str, Any]) -> None:
        for name, value in args.items():
            if value is None:
                continue
            said = event.debug_annotations.add()
            said.name = name
            if isinstance(value, int):
                said.int_value = value
            else:
                said.string_value = _text(str(value))

    def _packet(self) -> Any:
        packet = self._definitions.TracePacket()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _write(self, packet: Any) -> None:
        # A file is one message whose packets stand one after the other, so it can be appended to.
        self._stream.write(self._definitions.Trace(packet=[packet]).SerializeToString())


def _text(said: str) -> str:
    """Names are of any bytes, strings of the format are UTF-8."""
    return said.encode("utf-8", "replace").decode()
