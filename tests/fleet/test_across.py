"""What engines load that others exported: found where it is wrong, silent where it is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engine import tiny
from fleet.sharing import TIER, Event, Told, request, run

from hkvtool.analyzers import alone
from hkvtool.analyzers.exchanges import DIRECT
from hkvtool.cli.app import main
from hkvtool.fleet.asking import Check
from hkvtool.fleet.instances import instances, open_instance
from hkvtool.fleet.merged import Merged
from hkvtool.model.clocks import WallClock
from hkvtool.model.recording import read_recording
from hkvtool.recorder.recording import Recording

PROMPTS = ([1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8, 9, 10], [1, 2, 11, 12, 13, 14])

MS = 1_000_000


def check(folder: Path, skew: int = 50 * MS) -> dict[str, Any]:
    """What a fleet comes to, in this process."""
    shared = frozenset({TIER})
    return Merged(str(folder), shared, skew).take(map(Check(shared), instances(folder))).as_json()


def written(folder: Path, *told: Told) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for one in told:
        one.write(folder)
    return folder


def right(seed: int) -> tuple[list[Told], bool]:
    """Two engines on one tier, which nothing is wrong with; whether they have one clock."""
    random = Random(seed)
    one_host = seed % 2 == 0
    told = [Told("a.jsonl", "h1"), Told("b.jsonl", "h1" if one_host else "h2")]
    if not one_host:
        told[1].behind = random.randrange(10**12)
        told[1].wrong = random.randrange(-MS, MS)
    work = [
        [request(100 * n + i, random.choice(PROMPTS), at + 20 * MS * i, 4)
         for i in range(random.choice((3, 5)))]
        for n, at in enumerate(random.choice(((0, 60 * MS), (60 * MS, 0), (0, 0))))
    ]  # fmt: skip
    run(
        tiny.PRESETS[random.choice(sorted(tiny.PRESETS))], work, told, seed=seed,
        blocks=random.choice((60, 400)), tier=random.choice((12, 16, 24, 400)),
        fingerprint=random.random() < 0.5,
    )  # fmt: skip
    return told, one_host


def test_random_right_schedules_are_silent(tmp_path: Path) -> None:
    loaded = 0
    for seed in range(200):
        told, one_host = right(seed)
        folder = written(tmp_path / str(seed), *told)
        said = check(folder, 5 * MS)
        wrong = [f for f in said["findings"] if f["severity"] == "error"]
        assert wrong == [], (seed, wrong[0]["message"])
        blocks = said["between"].get("blocks", {"right": 0, "order_open": 0})
        loaded += blocks["right"]
        assert len(said["inconclusive"]) == (blocks["order_open"] > 0), seed
        # Of one machine's engines every order is known.
        assert not (one_host and blocks["order_open"]), seed
    assert loaded > 1000


class Pair:
    """A prefill engine whose history a decode engine loads, both recorded on one machine."""

    def __init__(self, *, fingerprint: bool = True, key: str = "model=m salt=s") -> None:
        self.p, self.d = Told("p.jsonl", "h1"), Told("d.jsonl", "h1")
        work = [[request(0, PROMPTS[0], 0, 1)], [request(100, PROMPTS[0], 200 * MS, 8)]]
        run(tiny.PLAIN, work, [self.p, self.d], fingerprint=fingerprint)
        for event in (*self.p.events, *self.d.events):
            if event["ev"] in ("publish", "lookup"):
                event["key"] = key.split()
        self.store = self.p.events[self.p.first(lambda e: e["ev"] == "store_begin")]
        self.stored = self.p.first(lambda e: e["ev"] == "store_end")
        self.load = self.d.events[self.d.first(lambda e: e["ev"] == "load_begin")]
        self.loaded = self.d.first(lambda e: e["ev"] == "load_end")
        assert self.load["peer"] == self.store["peer"][: len(self.load["peer"])]

    def later(self, told: Told, ms: int, start: int = 0) -> None:
        """What is told from an event on comes so much later."""
        for event in told.events[start:]:
            event["ts"] += ms * MS

    def insert(self, told: Told, ts: int, *events: Event) -> None:
        """Events of another engine's doing, in their place by time."""
        at = told.first(lambda e: e["ts"] > ts) if told.events[-1]["ts"] > ts else len(told.events)
        told.events[at:at] = [{**event, "ts": ts} for event in events]

    def evict(self, told: Told, ts: int) -> None:
        """The first place that was loaded is given to other content, as that engine sees it."""
        place = self.store["peer"][0]
        end = {"ev": "store_end", "handle": "other"}
        self.insert(
            told, ts,
            {"ev": "unpublish", "group": f"kv@{TIER}", "blocks": [place], "reason": "evict"},
            {"ev": "alloc", "group": f"kv@{TIER}", "blocks": [place]},
            {"ev": "store_begin", "handle": "other", "group": "kv", "blocks": [50],
             "peer": [place], "to": TIER, "hashes": [424242]},
            end,
        )  # fmt: skip

    def write(self, folder: Path) -> Path:
        return written(folder, self.p, self.d)


def late(pair: Pair) -> None:
    """The load does not wait for the end of the store."""
    pair.later(pair.p, 1000, pair.stored)


def never(pair: Pair) -> None:
    """The exporter dies while it stores."""
    del pair.p.events[pair.stored :]


def stale(pair: Pair) -> None:
    """The decode engine looks up and loads what was evicted long ago, by a router's old news."""
    pair.evict(pair.p, pair.d.events[0]["ts"] + 100 * MS)
    pair.p.events.sort(key=lambda e: e["ts"])


def toctou(pair: Pair) -> None:
    """What was found is evicted by the other engine before it is loaded."""
    lookup = pair.d.first(lambda e: e["ev"] == "lookup")
    pair.later(pair.d, 100, lookup + 1)
    pair.evict(pair.p, pair.d.events[lookup]["ts"] + 50 * MS)


def under_reader(pair: Pair) -> None:
    """What is being loaded is overwritten by the other engine."""
    pair.later(pair.d, 100, pair.loaded)
    pair.evict(pair.p, pair.load["ts"] + 50 * MS)


def other_salt(pair: Pair) -> None:
    """One hash for two tenants."""
    for event in pair.d.events:
        if event["ev"] == "lookup":
            event["key"] = ["model=m", "salt=t"]


def other_model(pair: Pair) -> None:
    """One hash for two models."""
    for event in pair.p.events:
        if event["ev"] == "publish":
            event["key"] = ["model=n", "salt=s"]


def other_weights(pair: Pair) -> None:
    """The decode engine has been given new weights."""
    for told, version in ((pair.p, "1"), (pair.d, "2")):
        told.events.insert(1, {"ev": "weights", "version": version, "ts": told.events[0]["ts"]})


def other_version(pair: Pair) -> None:
    """The two sides mean another content by one hash."""
    pair.store["version"], pair.load["version"] = 1, 2


def other_codec(pair: Pair) -> None:
    pair.store["codec"], pair.load["codec"] = "fp8/1", "fp8/2"


def too_much(pair: Pair) -> None:
    """The load reads more of each block than was exported."""
    pair.store["bytes"] = pair.store["bytes"] // 2


def other_dtype(pair: Pair) -> None:
    """Only the device's layouts differ: the tier says nothing of its own."""
    for told, dtype in ((pair.p, "uint8"), (pair.d, "int8")):
        for event in told.events:
            if event["ev"] == "group":
                event["layout"] = {} if event["group"] != "kv" else {"dtype": dtype}
            if event["ev"] == "kernel":
                event["expects"] = {}


def garbled(pair: Pair) -> None:
    """A bit flips on the way."""
    for event in pair.d.events:
        if event["ev"] == "fingerprint" and event["at"] == "load":
            event["values"] = [value ^ 1 for value in event["values"]]


ONCE: tuple[tuple[Callable[[Pair], None], str], ...] = (
    (late, "HKV103"), (never, "HKV103"), (stale, "HKV105"), (toctou, "HKV701"),
    (under_reader, "HKV702"), (other_salt, "HKV104"), (other_model, "HKV104"),
    (other_weights, "HKV105"), (other_version, "HKV105"), (other_codec, "HKV203"),
    (too_much, "HKV402"), (other_dtype, "HKV201"), (garbled, "HKV906"),
)  # fmt: skip


@pytest.mark.parametrize(("fault", "code"), ONCE, ids=[f.__name__ for f, _ in ONCE])
def test_each_fault_is_found_once_and_by_its_code(
    fault: Callable[[Pair], None], code: str, tmp_path: Path
) -> None:
    pair = Pair(fingerprint=fault is garbled)
    said = check(pair.write(tmp_path / "right"))
    assert (said["findings"], said["inconclusive"]) == ([], [])
    assert said["between"]["blocks"]["right"] == said["between"]["blocks"]["loads"] > 0
    fault(pair)
    said = check(pair.write(tmp_path / "wrong"))
    roots = [f for f in said["findings"] if "against" in f and not f.get("cause")]
    assert [f["code"] for f in roots] == [code], [f["message"] for f in said["findings"]]
    [found] = roots
    assert said["summary"]["error"] >= 1
    assert (found["instance"], found["against"]["instance"]) == ("d.jsonl", "p.jsonl")
    assert found["request"] == "r100"
    assert pair.load["blocks"][0] in found["blocks"]
    line = pair.p.events[found["against"]["event"] - 1]
    assert line["ev"] in ("store_begin", "alloc", "unpublish")


def test_equal_bytes_make_an_order_that_clocks_deny(tmp_path: Path) -> None:
    """An engine may hear late that its store has ended; the bytes tell that it had."""
    pair = Pair(fingerprint=True)
    late(pair)
    assert check(pair.write(tmp_path))["findings"] == []


def test_an_order_that_clocks_leave_open_is_inconclusive(tmp_path: Path) -> None:
    pair = Pair(fingerprint=False)
    pair.d.events[0]["clock"]["host"] = "h2"
    pair.write(tmp_path / "two")
    near = check(tmp_path / "two", 1000 * MS)
    assert near["findings"] == []
    assert "d.jsonl loaded" in near["inconclusive"][0]
    assert check(tmp_path / "two", MS)["inconclusive"] == []
    # Without a clock at all nothing is known of the order, in either direction.
    del pair.d.events[0]["clock"]
    late(pair)
    none = check(pair.write(tmp_path / "none"), 0)
    assert (none["findings"], len(none["inconclusive"])) == ([], 1)
    # What does not rest on the order is found all the same.
    other_salt(pair)
    said = check(pair.write(tmp_path / "salt"))
    assert [f["code"] for f in said["findings"]] == ["HKV104"]


def test_what_nobody_exported_is_not_evaluable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, Pair(fingerprint=False).d)
    said = check(tmp_path)
    blocks = said["between"]["blocks"]
    assert said["findings"] == []
    assert blocks["unknown_origin"] == blocks["loads"] > 0
    assert main(["fleet", "check", str(tmp_path), "--shared", TIER]) == 0
    assert "of unknown origin, not evaluable" in capsys.readouterr().out


def test_the_command_holds_engines_against_each_other_where_they_share_a_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = Pair(fingerprint=False)
    late(pair)
    pair.write(tmp_path)
    assert main(["fleet", "check", str(tmp_path)]) == 0
    assert "between instances nothing was evaluated" in capsys.readouterr().out
    assert main(["fleet", "check", str(tmp_path), "--shared", TIER]) == 1
    printed = capsys.readouterr().out
    assert "HKV103" in printed
    assert "ended only at event" in printed
    pair.d.events[0]["clock"]["host"] = "h2"
    pair.write(tmp_path)
    assert main(["fleet", "check", str(tmp_path), "--shared", TIER, "--skew", "5000"]) == 4
    assert "inconclusive: d.jsonl loaded" in capsys.readouterr().out


def test_a_faulty_export_names_who_loaded_it(tmp_path: Path) -> None:
    """A store of a block that was not written through is a finding of its own engine; who loaded
    it is said there."""
    pair = Pair(fingerprint=False)
    first = pair.store["blocks"][0]
    for event in pair.p.events:
        if event["ev"] == "write" and first in event["blocks"] and event["tokens"][0] == 0:
            event["tokens"] = [4, event["tokens"][1]]
    said = check(pair.write(tmp_path))
    stored = [f for f in said["findings"] if f["instance"] == "p.jsonl" and "loaded_by" in f]
    assert stored, [(f["code"], f["message"]) for f in said["findings"]]
    assert {one["instance"] for f in stored for one in f["loaded_by"]} == {"d.jsonl"}


def test_a_recording_says_how_its_clock_lies_to_the_wall_clock(tmp_path: Path) -> None:
    """In its first line, so that it is known of whatever is made of the recording."""
    before = time.time_ns()
    recording = Recording.start(tmp_path / "r.hkv")
    assert isinstance(recording, Recording)
    with recording:
        recording.emit_dict({"ev": "trace", "format": "hkv/1"})
        recording.emit("reset")
    after = time.time_ns()
    assert main(["fleet", "ingest", str(tmp_path / "r.hkv"), "-o", str(tmp_path / "fleet")]) == 0
    [kept] = instances(tmp_path / "fleet")
    with open_instance(kept.path) as trace:
        head, last = trace.events()
    clock = WallClock.of(head["clock"])
    assert clock is not None
    assert clock.pairs >= 1
    # The wall clock may be set a little meanwhile.
    assert before - 1e9 <= last["ts"] + clock.offset <= after + 1e9
    # As a recording it says the same.
    assert next(iter(read_recording(tmp_path / "r.hkv")))["clock"] == clock.fact()


@pytest.mark.parametrize(
    "said", [None, 7, {}, {"offset": "1"}, {"offset": True}, {"offset": 1, "error": -1}]
)
def test_a_clock_that_makes_no_sense_is_none(said: Any) -> None:
    assert WallClock.of(said) is None


def test_a_long_trace_is_checked_alone_as_a_short_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(fingerprint=False)
    first = pair.store["blocks"][0]
    for event in pair.p.events:
        if event["ev"] == "write" and first in event["blocks"] and event["tokens"][0] == 0:
            event["tokens"] = [4, event["tokens"][1]]
    short = check(pair.write(tmp_path))
    monkeypatch.setattr(alone, "PLAIN_LIMIT", 0)
    assert check(tmp_path) == short
    assert short["summary"]["error"]


class Handover(Pair):
    """The same from device to device, as an engine with a connector of its own tells it: nothing
    of where it comes from, and the hash only when the decode engine publishes it."""

    def __init__(self, *, fingerprint: bool = False) -> None:
        super().__init__(fingerprint=fingerprint)
        for told in (self.p, self.d):
            told.events = [
                {k: v for k, v in e.items() if k not in ("from", "peer")}
                for e in told.events
                if not e["ev"].startswith("store") and TIER not in str(e.get("group", ""))
                and e.get("pool") != TIER and not (e["ev"] == "fingerprint" and e["at"] == "store")
            ]  # fmt: skip
            for event in told.events:
                for key in ("hit", "blocks", "hashes"):
                    if event["ev"] == "lookup" and key in event:
                        event[key] = {g: v for g, v in event[key].items() if TIER not in g}
        self.load = self.d.events[self.d.first(lambda e: e["ev"] == "load_begin")]
        self.loaded = self.d.first(lambda e: e["ev"] == "load_end")
        self.published = self.p.first(lambda e: e["ev"] == "publish")


def direct(folder: Path, skew: int = 50 * MS) -> dict[str, Any]:
    shared = frozenset({DIRECT})
    return Merged(str(folder), shared, skew).take(map(Check(shared), instances(folder))).as_json()


def before_published(pair: Handover) -> None:
    """The hash is made before there is anything to it."""
    pair.later(pair.p, 1000, pair.published)


def in_other_bytes(pair: Handover) -> None:
    """What arrives is not what was published."""
    hashes = pair.p.events[pair.published]
    value = list(range(len(hashes["blocks"])))
    for told, at, blocks, where in (
        (pair.p, "publish", hashes["blocks"], pair.published),
        (pair.d, "load", pair.load["blocks"], pair.loaded),
    ):
        told.events.insert(where + 1, {
            "ev": "fingerprint", "group": "kv", "blocks": blocks, "values": value[: len(blocks)],
            "at": at, "ts": told.events[where]["ts"],
        })  # fmt: skip
        value = [v + 1 for v in value]


def of_other_bytes(pair: Handover) -> None:
    """Bytes laid out otherwise have other checksums, and may be the same content."""
    in_other_bytes(pair)
    for event in pair.d.events:
        if event["ev"] == "group":
            event["layout"] = {**event["layout"], "tp_shard": 1}


HANDED: tuple[tuple[Callable[[Handover], None], list[str]], ...] = (
    (lambda pair: None, []), (before_published, ["HKV103"]), (other_salt, ["HKV104"]),
    (other_model, ["HKV104"]), (other_weights, ["HKV105"]), (other_dtype, ["HKV201"]),
    (in_other_bytes, ["HKV906"]), (of_other_bytes, []),
)  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "codes"), HANDED, ids=[getattr(f, "__name__", "") for f, _ in HANDED]
)
def test_what_goes_from_device_to_device_is_held_against_what_was_published(
    fault: Callable[[Handover], None], codes: list[str], tmp_path: Path
) -> None:
    pair = Handover()
    fault(pair)
    said = direct(pair.write(tmp_path))
    roots = [f for f in said["findings"] if "against" in f and not f.get("cause")]
    assert [f["code"] for f in roots] == codes, [f["message"] for f in said["findings"]]
    blocks = said["between"]["blocks"]
    assert blocks["loads"] > 0
    assert blocks["unknown_origin"] == 0
    assert blocks["right"] == (0 if codes else blocks["loads"])


def test_what_no_other_published_is_of_unknown_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under keys of their own no hash of one recording is known to the other."""
    pair = Handover()
    for event in pair.p.events:
        if event["ev"] == "publish":
            event["hashes"] = [name ^ 1 for name in event["hashes"]]
    pair.write(tmp_path)
    blocks = direct(tmp_path)["between"]["blocks"]
    assert blocks["unknown_origin"] == blocks["loads"] > 0
    assert main(["fleet", "check", str(tmp_path), "--direct"]) == 4
    printed = capsys.readouterr().out
    assert "from device to device: no rule could be asked" in printed
    assert "--hash-key" in printed


def early(pair: Handover) -> None:
    """The decode engine publishes what it is about to load, as engines do that plan a step."""
    events = pair.d.events
    blocks = set(pair.load["blocks"])
    at = pair.d.first(lambda e: e["ev"] == "publish" and bool(blocks & set(e["blocks"])))
    published = {**events.pop(at), "ts": pair.load["ts"]}
    events.insert(events.index(pair.load), published)


def test_a_hash_that_is_published_before_its_load_is_that_of_the_load(tmp_path: Path) -> None:
    pair = Handover()
    before = direct(pair.write(tmp_path / "late"))["between"]["blocks"]
    early(pair)
    after = direct(pair.write(tmp_path / "early"))["between"]["blocks"]
    # What it loaded itself it does not export, whenever it was published.
    assert after == before
    assert after["right"] == after["loads"] > 0


def test_what_was_not_told_on_both_sides_is_not_said_to_be_evaluated(tmp_path: Path) -> None:
    pair = Handover()
    for event in (*pair.p.events, *pair.d.events):
        if event["ev"] in ("publish", "lookup"):
            del event["key"]
    between = direct(pair.write(tmp_path))["between"]
    blind = {one["code"]: one["needs"] for one in between["not_evaluable"]}
    assert blind.keys().isdisjoint(between["rules"])
    assert blind["HKV104"] == ["key"]
    assert blind["HKV906"] == ["fingerprint"]
    assert blind["HKV701"] == ["pool"]
    assert "HKV103" in between["rules"]
    in_other_bytes(pair)
    between = direct(pair.write(tmp_path))["between"]
    assert "HKV906" in between["rules"]
    assert between["compared"]["fingerprint"] == between["blocks"]["loads"]


def test_a_load_that_failed_is_counted_and_not_judged(tmp_path: Path) -> None:
    pair = Handover()
    end = pair.d.events[pair.loaded]
    end |= {"ok": False, "failed": pair.load["blocks"]}
    blocks = direct(pair.write(tmp_path))["between"]["blocks"]
    assert blocks["failed"] == len(pair.load["blocks"])
    assert blocks["loads"] == 0


def exchanged(pair: Handover) -> None:
    """Two files of one tier change places."""
    in_other_bytes(pair)
    prints = [e for e in pair.p.events if e["ev"] == "fingerprint" and e["at"] == "publish"]
    values = prints[0]["values"]
    for event in pair.d.events:
        if event["ev"] == "fingerprint" and event["at"] == "load":
            event["values"] = (values[1:] + values[:1])[: len(event["blocks"])]


def test_bytes_that_another_content_was_exported_with_are_told_as_its(tmp_path: Path) -> None:
    pair = Handover()
    exchanged(pair)
    said = direct(pair.write(tmp_path / "known"))
    [found] = [f for f in said["findings"] if "against" in f]
    assert found["code"] == "HKV906"
    assert "those of other content, which p.jsonl exported" in found["message"]
    # Under a hash that nobody exported they are no fault for certain, and not silent either.
    for event in pair.d.events:
        if event["ev"] == "publish":
            event["hashes"] = [name ^ 1 for name in event["hashes"]]
    said = direct(pair.write(tmp_path / "unknown"))
    assert not [f for f in said["findings"] if "against" in f]
    assert any("lacks an input" in why for why in said["inconclusive"])
