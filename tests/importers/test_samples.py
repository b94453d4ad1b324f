"""Each sample becomes a trace that says no more than the sample does, and is judged so."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.importers import importing, mooncake
from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.event import Event
from hkvtool.store import open_trace
from importers import samples as made

SAMPLES = {
    "kv-events-vllm-0.32.0.jsonl": "kv-events",
    "kv-events-sglang-0.5.23.jsonl": "kv-events",
    "dynamo.jsonl": "dynamo",
    "trtllm.json": "trtllm",
    "kv-canary.log": "kv-canary",
    "lmcache-storage.lct": "lmcache",
    "lmcache-events.lct": "lmcache",
    "torch-memory.pickle": "torch-memory",
    "vllm-cache": "cache-files",
}

FOUND = {"kv-canary.log": ["HKV906", "HKV906"], "vllm-cache": ["HKV402"]}
"""What `check` finds: two proofs by bytes, and a file that is cut. Of the others nothing."""

EVALUABLE = {
    "kv-events-vllm-0.32.0.jsonl": {"HKV901"},
    "kv-events-sglang-0.5.23.jsonl": {"HKV901"},
    "dynamo.jsonl": {"HKV901"},
    "trtllm.json": {"HKV901"},
    "lmcache-events.lct": {"HKV901"},
    "kv-canary.log": {"HKV906"},
    "torch-memory.pickle": {"HKV401", "HKV402", "HKV403", "HKV404", "HKV804"},
    "vllm-cache": {"HKV402", "HKV403"},
    "lmcache-storage.lct": set(),
}
"""Rules that the evidence supports, among those that need any."""

NEVER = {"HKV101", "HKV105", "HKV303", "HKV702", "HKV801", "HKV902"}
"""Rules about blocks, reads and orders: in none of these."""


def events(path: Path, names: Any) -> list[dict[str, Any]]:
    importer = importing.sniffed(path)
    assert importer is not None
    return list(importer.read(path, names))


def report(lines: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = check(Event.of(i, line) for i, line in enumerate(lines, 1)).as_json()
    return found


@pytest.mark.parametrize("sample", made.FILES)
def test_a_sample_is_as_it_was_made(sample: str, samples: Path) -> None:
    assert (samples / sample).read_bytes() == made.FILES[sample]()


def test_a_folder_is_as_it_was_made(samples: Path, tmp_path: Path) -> None:
    made.cache_files(tmp_path / "made")
    for there in (tmp_path / "made").rglob("*.*"):
        name = there.relative_to(tmp_path / "made")
        assert (samples / "vllm-cache" / name).read_bytes() == there.read_bytes()


@pytest.mark.parametrize(("sample", "importer"), SAMPLES.items())
def test_its_content_says_what_it_is(sample: str, importer: str, samples: Path) -> None:
    found = importing.sniffed(samples / sample)
    assert found is not None and found.name == importer
    assert not mooncake.sniff(samples / sample)


def test_other_files_are_none_of_these(samples: Path, tmp_path: Path, cases: Any) -> None:
    for path in (cases["A01"].bad, samples / "mooncake.jsonl", samples / "README.md"):
        assert importing.sniffed(path) is None
    assert importing.sniffed(tmp_path) is None
    assert mooncake.sniff(samples / "mooncake.jsonl")
    zipped = tmp_path / "m.gz"
    zipped.write_bytes(gzip.compress((samples / "mooncake.jsonl").read_bytes()))
    assert mooncake.sniff(zipped)


@pytest.mark.parametrize("sample", ["dynamo.jsonl", "trtllm.json", "kv-canary.log"])
def test_a_gzipped_file_is_the_same(sample: str, samples: Path, tmp_path: Path, names: Any) -> None:
    path = tmp_path / f"{sample}.gz"
    path.write_bytes(gzip.compress((samples / sample).read_bytes()))
    assert events(path, names) == events(samples / sample, names)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match="cut or damaged"):
        events(path, names)


@pytest.mark.parametrize("sample", SAMPLES)
def test_check_says_what_can_be_judged_and_finds_what_is_there(
    sample: str, samples: Path, names: Any
) -> None:
    found = report(events(samples / sample, names))
    assert [f["code"] for f in found["findings"]] == FOUND.get(sample, [])
    unjudged = {entry["code"] for entry in found["not_evaluable"]}
    assert unjudged >= NEVER
    assert not EVALUABLE[sample] & unjudged
    assert found["ratios"]["asked"] == 0


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("suffix", [".duckdb", ".jsonl"])
def test_every_line_is_an_event_and_comes_back(
    sample: str, suffix: str, samples: Path, names: Any, tmp_path: Path
) -> None:
    target = tmp_path / f"out{suffix}"
    importer = importing.named(SAMPLES[sample])
    count, _ = importing.import_foreign(importer, samples / sample, target, names)
    with open_trace(target) as trace:
        back = list(trace.events())
    assert [e.problem for e in back] == [None] * count
    assert [dict(e.data) for e in back] == events(samples / sample, names)


def test_recorded_batches_are_read_whole(samples: Path, names: Any) -> None:
    """What the engines' own encoders wrote: every event, its group and its tier."""
    vllm = events(samples / "kv-events-vllm-0.32.0.jsonl", names)[1:]
    kinds = Counter((w["kind"], w.get("group")) for w in vllm)
    assert kinds["stored", "group0"] == 8 and kinds["removed", "group2"] == 10
    assert {w.get("medium") for w in vllm if w["kind"] != "cleared"} == {"gpu"}
    assert vllm[0]["spec"] == "full_attention" and vllm[1]["window"] == 48
    sglang = events(samples / "kv-events-sglang-0.5.23.jsonl", names)[1:]
    assert [w["kind"] for w in sglang] == ["stored", "stored", "stored", "removed", "cleared"]
    assert sglang[2]["medium"] == "cpu" and sglang[2]["tier"] == "CPU_PINNED"
    assert sglang[2]["hashes"] == sglang[0]["hashes"][:1] == sglang[3]["hashes"]
    assert [w["wseq"] for w in sglang] == list(range(5))


def test_no_hash_of_the_source_is_in_the_trace(samples: Path, names: Any) -> None:
    text = json.dumps(events(samples / "dynamo.jsonl", names))
    assert str(0xF1E2D3C4B5A69788) not in text and f"{0xF1E2D3C4B5A69788:x}" not in text


def test_workers_are_lanes_with_numbers_of_their_own(samples: Path, names: Any) -> None:
    wires = events(samples / "dynamo.jsonl", names)[1:]
    assert [w["wseq"] for w in wires if w["actor"] == "worker:7"] == [0, 1, 2]
    assert [w["kind"] for w in wires if w["actor"] == "worker:9"][-1] == "cleared"
    assert wires[1]["hashes"][0] == wires[0]["hashes"][0]
    assert wires[2]["parent"] == wires[0]["hashes"][1]


@pytest.mark.parametrize(
    ("numbers", "codes"), [([0, 1, 2], []), ([0, 2], ["HKV901"]), ([0, 1, 1], ["HKV901"])]
)
def test_a_router_that_missed_or_doubled_events_is_found(
    numbers: list[int], codes: list[str], samples: Path, tmp_path: Path, names: Any
) -> None:
    line = json.loads((samples / "dynamo.jsonl").read_text().splitlines()[0])
    path = tmp_path / "d.jsonl"
    with path.open("w") as out:
        for number in numbers:
            line["event"]["event"]["event_id"] = number
            out.write(json.dumps(line) + "\n")
    assert [f["code"] for f in report(events(path, names))["findings"]] == codes


def test_a_line_that_cannot_be_read_is_a_gap_that_says_where(
    samples: Path, tmp_path: Path, names: Any
) -> None:
    lines = (samples / "dynamo.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "d.jsonl"
    path.write_bytes(lines[0] + b'{"timestamp": 1, "event": \n' + b"".join(lines[1:]))
    told = events(path, names)
    gap = next(t for t in told if t["ev"] == "dropped")
    assert gap["reason"].startswith(f"offset {len(lines[0]) + 27:,}: not JSON")
    found = report(told)
    assert [f["code"] for f in found["findings"]] == ["HKV903"] and len(told) == 9


def test_windows_are_groups_and_levels_are_tiers(samples: Path, names: Any) -> None:
    told = events(samples / "trtllm.json", names)
    pools = {t["pool"]: t["blocks"] for t in told if t["ev"] == "pool"}
    assert pools == {"gpu/window8192": 101, "cpu/window8192": 256, "gpu/window1024": 64}
    groups = {t["group"]: (t["form"], t["block_tokens"]) for t in told if t["ev"] == "group"}
    assert groups == {
        "window8192": ("compressed", 32), "window8192@cpu": ("compressed", 32),
        "window1024": ("swa", 32),
    }  # fmt: skip
    moved = [(t["kind"], t["group"]) for t in told if t.get("wseq") == 4]
    assert moved == [("removed", "window8192"), ("stored", "window8192@cpu")]


def test_a_restarted_instance_is_a_lane_of_its_own(samples: Path, names: Any) -> None:
    told = events(samples / "lmcache-events.lct", names)[1:]
    assert [(t["actor"], t["kind"], t.get("wseq")) for t in told][-2:] == [
        ("mp-0", "cleared", None), ("mp-0#1", "stored", 1),
    ]  # fmt: skip
    assert told[1]["medium"] == "disk" and told[0]["medium"] == "cpu"


@pytest.mark.parametrize("cut", [3, 5, 40, 400, 1200])
def test_a_cut_trace_gives_what_is_before_the_cut(
    cut: int, samples: Path, tmp_path: Path, names: Any
) -> None:
    path = tmp_path / "c.lct"
    path.write_bytes((samples / "lmcache-events.lct").read_bytes()[:-cut])
    told = events(path, names)
    assert told[-1]["ev"] == "dropped" and "before its last frame" in told[-1]["reason"]
    assert told[:-1] == events(samples / "lmcache-events.lct", names)[: len(told) - 1]


def test_storage_that_moved_is_a_rebase(samples: Path, names: Any) -> None:
    told = events(samples / "torch-memory.pickle", names)
    group, rebase = (next(t for t in told if t["ev"] == ev) for ev in ("group", "rebase"))
    assert group["layout"]["base"] == 0x7F0000000000
    assert rebase["layout"]["base"] == 0x7F4000000000 and rebase["group"] == group["group"]
    assert sum(t["ev"] == "group" for t in told) == 1, "the weights are no KV cache"


class Bomb:
    """What a pickle can be made to do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("it-ran"),))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_runs_nothing(
    protocol: int, tmp_path: Path, names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pickle

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "b.pickle"
    path.write_bytes(pickle.dumps({"segments": [Bomb()]}, protocol=protocol))
    with pytest.raises(TraceError, match="more than plain values") as found:
        list(importing.named("torch-memory").read(path, names))
    assert "offset" in found.value.where
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_of_plain_values_is_read(protocol: int, tmp_path: Path) -> None:
    import pickle

    from hkvtool.importers.plain_pickle import read_plain

    shared = [
        1,
        -2,
        1 << 80,
        1.5,
        "é\ud800",
        None,
        True,
        False,
        (),
        (1,),
        (1, 2),
        (1, 2, 3),
        (4,) * 9,
    ]
    value = {"a": shared, "b": [shared, {}, {"c": list(range(2000))}], 3: "x" * 70000}
    path = tmp_path / "p"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    with path.open("rb") as stream:
        assert read_plain(stream) == value


def test_faults_of_a_folder(samples: Path, tmp_path: Path, names: Any) -> None:
    folder = tmp_path / "cache"
    shutil.copytree(samples / "vllm-cache", folder)
    long = next(folder.rglob("0000*.bin"))
    long.write_bytes(b"\0" * 600)
    told = events(folder, names)
    assert [f["code"] for f in report(told)["findings"]] == ["HKV403", "HKV402"]
    state = next(t for t in told if t["ev"] == "state")
    assert len(state["misnamed"]) == 1 and "fff/20" in state["misnamed"][0]
    assert next(t for t in told if t["ev"] == "group")["block_tokens"] == 16


def test_sglang_and_lmcache_folders(tmp_path: Path, names: Any) -> None:
    for name in (
        "ab" * 32 + "_org-model_0_2.bin", "cd" * 32 + "_org-model_1_2.bin",
        "ab" * 32 + ".swa_org-model_0_2.bin", "ee" * 32 + "_org-model_2_2.bin",
    ):  # fmt: skip
        (tmp_path / name).write_bytes(b"\0" * 128)
    (tmp_path / ("org-SEP-model@0x1@2@" + "12" * 32 + ".data")).write_bytes(b"\0" * 64)
    told = events(tmp_path, names)
    groups = {t["group"] for t in told if t["ev"] == "group"}
    assert groups == {
        "org-model/kv/rank0", "org-model/kv/rank1", "org-model/swa/rank0", "org-model/kv/rank2",
        "org-SEP-model/object2/rank1",
    }  # fmt: skip
    assert "1 misnamed" in told[0]["note"]


def test_an_unknown_format_is_told() -> None:
    with pytest.raises(HkvError, match="there is no format 'x'"):
        importing.named("x")


@pytest.mark.parametrize("importer", list(importing.importers()))
def test_a_file_of_another_kind_is_no_trace(importer: str, tmp_path: Path, names: Any) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"\x7fELF\x02\x01" + b"\0" * 500)
    target = tmp_path / "t.duckdb"
    try:
        _, problems = importing.import_foreign(importing.named(importer), path, target, names)
    except TraceError:
        assert not target.exists()
    else:
        assert problems
