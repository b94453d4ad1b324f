"""The protobuf form is valid by the format's own definitions, and says what the JSON form says."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS
from hkvtool.report.perfetto import export_perfetto
from hkvtool.report.perfetto_packets import PacketTimeline

pytest.importorskip("perfetto", reason="the extra `perfetto` is not installed")


class Read(NamedTuple):
    """A file as a viewer takes it: tracks by number, and their events sorted as it sorts them."""

    tracks: dict[int, Any]
    events: list[tuple[int, Any]]

    def of(self, track: int) -> list[tuple[int, Any]]:
        return [(ts, e) for ts, e in self.events if e.track_uuid == track]

    def below(self, title: str) -> dict[int, Any]:
        (parent,) = (u for u, t in self.tracks.items() if t.name == title and not t.parent_uuid)
        return {u: t for u, t in self.tracks.items() if t.parent_uuid == parent}


def read(data: bytes) -> Read:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace.FromString(data)
    unknown(trace)
    tracks: dict[int, Any] = {}
    events = []
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            told = packet.track_descriptor
            assert told.uuid not in tracks
            assert not told.parent_uuid or told.parent_uuid in tracks
            tracks[told.uuid] = told
        else:
            assert packet.track_event.track_uuid in tracks, "told before it is used"
            events.append((packet.timestamp, packet.track_event))
    # Stable, as the viewer's own sort: what stands first in the file is first at one time.
    return Read(tracks, sorted(events, key=lambda e: e[0]))


def unknown(message: Any) -> None:
    """No field, and no value of an enumeration, that the definitions do not have."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    assert len(UnknownFieldSet(message)) == 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                unknown(part)
        elif field.enum_type is not None:
            assert value in field.enum_type.values_by_number


def exported(events: list[Event], most: int = 10**6) -> Read:
    stream = io.BytesIO()
    export_perfetto(events, PacketTimeline(stream), most=most)
    return read(stream.getvalue())


def slices(found: Read, track: int) -> list[tuple[str, int, int | None]]:
    """Name, begin and end of a track's slices: one inside the other, or one after the other."""
    made, opened = [], []
    for ts, e in found.of(track):
        if e.type == e.TYPE_SLICE_BEGIN:
            opened.append((e.name, ts))
        elif e.type == e.TYPE_SLICE_END:
            name, begin = opened.pop()
            made.append((name, begin, ts))
    return made + [(name, begin, None) for name, begin in opened]


def arrows(found: Read) -> dict[str, list[tuple[int, int]]]:
    """By name of a finding: time and track of what its flow joins, the last one last."""
    joined: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ended: dict[int, str] = {}
    for ts, e in found.events:
        for flow in (*e.flow_ids, *e.terminating_flow_ids):
            assert flow not in ended, "nothing behind the end"
            joined[flow].append((ts, e.track_uuid))
        for flow in e.terminating_flow_ids:
            ended[flow] = e.name
    return {ended[flow]: places for flow, places in joined.items()}


def counters(found: Read, name: str) -> Iterator[dict[str, float]]:
    """The numbers of one group of counters, each time all of them were told."""
    (above,) = (u for u, t in found.below("blocks and ratios").items() if t.name == name)
    series = {u: t.name for u, t in found.tracks.items() if t.parent_uuid == above}
    now: dict[str, float] = {}
    for _, e in found.events:
        if e.track_uuid in series:
            exact = e.HasField("counter_value")
            now[series[e.track_uuid]] = e.counter_value if exact else e.double_counter_value
            if e.track_uuid == max(series) and len(now) == len(series):
                yield dict(now)


def test_every_case_is_valid_and_says_what_happened(
    case: Any, read_events: Callable[..., list[Event]]
) -> None:
    for arm in case.arms:
        events = read_events(arm)
        found = exported(events)
        happened = [e for e in events if e.ev not in DECLARATIONS and e.problem is None]
        lanes = found.below("lanes")
        assert {t.name for t in lanes.values()} == {e.actor for e in happened}
        drawn = [s for lane in lanes for s in slices(found, lane)]
        assert Counter(name for name, _, _ in drawn) == Counter(e.ev for e in happened)
        assert all(end is not None and end > begin for _, begin, end in drawn)
        for track in (*found.below("steps"), *found.below("transfers"), *found.below("findings")):
            assert len(slices(found, track)) == 1, "one that may overlap others has its own track"
        told = check(events).findings
        named = {f"{f.id} {f.code}" for f in told}
        assert {s[0] for t in found.below("findings") for s in slices(found, t)} <= named
        for name, places in arrows(found).items():
            assert name in named and len(places) > 1
            for ts, lane in places:
                assert any(b <= ts <= (e or b) for _, b, e in slices(found, lane)), name


def test_the_race_leads_from_lane_to_lane(
    cases: Any, read_events: Callable[..., list[Event]]
) -> None:
    found = exported(read_events(cases["B03"].bad))
    arrow = arrows(found)["F1 HKV703"]
    assert len({lane for _, lane in arrow}) > 1 and arrow == sorted(arrow, key=lambda p: p[0])
    assert {t.name for t in found.below("transfers").values()} == {"load"}
    (about,) = (e for _, e in found.events if e.name == "hkvtool")
    said = {a.name: a.int_value or a.string_value for a in about.debug_annotations}
    assert said == {"format": "hkv/1", "events": 43, "left_out": ""}


def test_counters_add_up_to_the_pool(cases: Any, read_events: Callable[..., list[Event]]) -> None:
    events = read_events(cases["A01"].good)
    found = exported(events)
    for pool in (e for e in events if e.ev == "pool"):
        told = list(counters(found, f"{pool['pool']} blocks"))
        assert told and all(set(t) == {"held", "cached", "recovering", "free"} for t in told)
        assert {sum(t.values()) for t in told} == {pool["blocks"]}
    ratios = check(events).ratios
    last = list(counters(found, "ratios, %"))[-1]
    assert last["match"] == round(100 * ratios.matched / ratios.asked, 2)
    assert last["resumable"] == round(100 * ratios.resumable / ratios.asked, 2)


def test_what_is_cut_is_said_and_findings_stay(
    cases: Any, read_events: Callable[..., list[Event]]
) -> None:
    found = exported(read_events(cases["B03"].bad), most=20)
    (about,) = (e for _, e in found.events if e.name == "hkvtool")
    assert {a.name: a.int_value for a in about.debug_annotations}["left_out"] > 0
    assert [t.name for t in found.below("findings").values()].count("finding") >= 1


def test_names_of_any_bytes_are_text() -> None:
    lines: list[dict[str, Any]] = [
        {"ev": "trace", "format": "hkv/1"},
        {"ev": "pool", "pool": "g\udcff", "medium": "gpu", "blocks": 4},
        {"ev": "group", "group": "k", "form": "compressed", "pool": "g\udcff", "block_tokens": 16},
        {"ev": "alloc", "group": "k", "blocks": [1], "req": "r\ud800", "actor": "a\udc80"},
    ]
    found = exported([Event.of(i, data) for i, data in enumerate(lines, 1)])
    assert [t.name for t in found.below("lanes").values()] == ["a?"]


@pytest.mark.parametrize("name", ["t.pftrace", "t.pftrace.gz", "t.perfetto-trace"])
def test_the_name_chooses_the_encoding(name: str, hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    import gzip

    out = tmp_path / name
    outcome = hkvtool("export", str(cases["B03"].bad), "--format", "perfetto", "-o", str(out))
    assert outcome.code == 0, outcome.err
    data = out.read_bytes()
    assert "F1 HKV703" in arrows(read(gzip.decompress(data) if name.endswith("gz") else data))
    said = ("--encoding", "json", "--force")
    assert hkvtool("export", str(cases["B03"].bad), "--format", "perfetto", "-o", str(out),
                   *said).code == 0  # fmt: skip
    data = out.read_bytes()
    assert (gzip.decompress(data) if name.endswith("gz") else data).startswith(b'{"display')


def test_without_the_package_it_says_so_and_leaves_nothing(
    hkvtool: Any, cases: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "perfetto", None)
    for module in [m for m in __import__("sys").modules if m.startswith("perfetto.")]:
        monkeypatch.delitem(__import__("sys").modules, module)
    out = tmp_path / "t.pftrace"
    outcome = hkvtool("export", str(cases["B03"].bad), "--format", "perfetto", "-o", str(out))
    assert outcome.code == 2 and "hkvtool[perfetto]" in outcome.err
    assert not list(tmp_path.iterdir())


def test_an_encoding_is_of_perfetto_files_only(hkvtool: Any, cases: Any) -> None:
    outcome = hkvtool("export", str(cases["B03"].bad), "--encoding", "protobuf")
    assert outcome.code == 2 and "--format perfetto" in outcome.err
