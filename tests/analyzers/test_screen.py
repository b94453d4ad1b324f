"""The screen lets pass only what the rules find right, and says of it what they say."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from variants.correct import correct_trace
from variants.mutants import OPERATORS, _whole
from variants.options import random_options

from hkvtool.analyzers import check
from hkvtool.analyzers.check import FAMILIES
from hkvtool.analyzers.screen import looked_through
from hkvtool.analyzers.screen_fold import Suspicious, warm_up
from hkvtool.analyzers.screen_rows import Rows
from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS
from hkvtool.store import open_trace
from hkvtool.store.importing import import_traces

SHIPPED = Path(__file__).parents[2] / "fixtures"

UNDERSTOOD = {
    "kernel_abi": "declarations by itself; sides of a transfer: screen_declared",
    "alignment": "declarations by itself; transfers: bounds_are_right, screen_sql.too_long",
    "races": "screen_order, screen_races",
    "buffers": "by itself",
    "refcounts": "alloc_is_right, free_is_right, unpin_is_right, unpublish_is_right, "
    "write_is_private; refusals and states by itself",
    "pointers": "write_is_private; leases by itself, ends behind one are asked of later; places are "
    "not screened",
    "topology": "captures and launches by itself; what moves memory is not screened",
    "padding": "use_is_right; rows of padding are asked of later",
    "routing": "resumes by itself",
    "transfers": "end_is_right, begin_is_right; what never ends at the end",
    "whole_block": "lookups and the wire by itself",
    "keys": "not screened",
    "stores": "store_is_right",
    "parts": "not screened",
    "group_intersection": "by itself, also where a resume was put off",
    "toctou": "use_is_right",
    "tails": "tail_is_there",
    "selections": "by itself",
    "components": "alloc_is_right",
    "admission": "load_is_right, travels_on",
    "progress": "refusals and preemptions by itself; limits of patience are not screened",
    "wire": "by itself",
}  # fmt: skip
"""What stands for each family while a trace is screened. Whoever adds a rule, or lets one look at
more, adds to the screen what it would have to say, and an example to `fixtures/rules`."""


def test_every_family_is_accounted_for() -> None:
    assert {f.__module__.rpartition(".")[2] for f in FAMILIES} == set(UNDERSTOOD)


def examples(pattern: str, every: int = 1) -> list[Path]:
    return sorted(SHIPPED.glob(pattern))[::every]


def screen(source: Path, folder: Path) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """What the screen says, where it lets the trace pass, and what the rules say."""
    path = folder / "trace.duckdb"
    import_traces([str(source)], path, force=True)
    with open_trace(str(path)) as trace:
        by_rules = check(trace.events()).as_json()
        try:
            return looked_through(trace).as_json(), by_rules
        except Suspicious:
            return None, by_rules


def passing(sources: list[Path], folder: Path) -> list[dict[str, Any]]:
    """Reports of those traces that the screen lets pass; each is what the rules say."""
    passed: list[dict[str, Any]] = []
    for source in sources:
        by_screen, by_rules = screen(source, folder)
        if by_screen is not None:
            assert json.dumps(by_screen) == json.dumps(by_rules), source.name
            passed.append(by_screen)
    return passed


def test_no_fault_of_the_corpus_gets_past(tmp_path: Path) -> None:
    for report in passing(examples("cases/*/bad.jsonl"), tmp_path):
        # What a lookup throws away is told by the rule itself, wherever a trace is checked.
        assert {finding["code"] for finding in report["findings"]} == {"HKV308"}


def test_correct_cases_pass_with_what_the_rules_say(tmp_path: Path) -> None:
    assert len(passing(examples("cases/*/good.jsonl", 2), tmp_path)) > 5


@pytest.mark.parametrize(("pattern", "every"), [("*.fires", 1), ("clauses/*.fires", 6)])
def test_no_example_of_a_rule_gets_past(pattern: str, every: int, tmp_path: Path) -> None:
    for report in passing(examples(f"rules/{pattern}.jsonl", every), tmp_path):
        assert {finding["code"] for finding in report["findings"]} == {"HKV308"}


@pytest.mark.soak
def test_no_clause_of_any_rule_gets_past(tmp_path: Path) -> None:
    assert len(passing(examples("rules/**/*.jsonl"), tmp_path)) > 100


def test_of_mutants_only_what_the_rules_find_right_gets_past(tmp_path: Path) -> None:
    sources: list[Path] = []
    for number in range(6):
        rng = Random(f"screened {number}")
        events = correct_trace(number, _whole(random_options(rng)))
        mutants = (operate(events, rng) for operate in OPERATORS.values())
        for lines in [events, *(mutant[1] for mutant in mutants if mutant is not None)]:
            sources.append(tmp_path / f"{len(sources)}.jsonl")
            sources[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(sources) > 60
    assert passing(sources, tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def run(folder: Path, *options: str) -> str:
    """A trace of the reference engine; its path."""
    path = folder / ("-".join(options).strip("-") + ".duckdb")
    ended = subprocess.run(
        [sys.executable, "-m", "hkvtool", "run", *options, "-o", str(path)],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert path.exists(), ended.stderr
    return str(path)


@pytest.mark.parametrize("preset", ["deepseek-v4", "gemma3", "qwen3-next", "deepseek-v3.2"])
def test_correct_engines_pass_with_what_the_rules_say(preset: str, runs: Path) -> None:
    with open_trace(run(runs, "--preset", preset, "--requests", "12")) as trace:
        by_screen = looked_through(trace).as_json()
        assert json.dumps(by_screen) == json.dumps(check(trace.events()).as_json())


@pytest.mark.parametrize(
    "options", [("--trust-hash",), ("--fault", "HKV303"), ("--fault", "HKV702")]
)
def test_an_engine_with_a_fault_does_not_get_past(options: tuple[str, ...], runs: Path) -> None:
    with open_trace(run(runs, "--preset", "gpt-oss", "--requests", "40", *options)) as trace:
        found = check(trace.events()).findings
        assert any(finding.code != "HKV308" for finding in found)
        with pytest.raises(Suspicious):
            looked_through(trace)


def peak(events: int, folder: Path) -> int:
    """Bytes that screening a trace of so many events takes at most."""
    path = folder / f"{events}.duckdb"
    synthetic_trace(path, events, pool_blocks=1 << 12)
    with open_trace(str(path)) as trace:
        warm_up(trace)
        tracemalloc.start()
        try:
            report = looked_through(trace)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert report.trace["events"] == trace.count


@pytest.mark.soak
def test_memory_hardly_grows_with_the_trace(tmp_path: Path) -> None:
    # Both are longer than what is decoded at once. Names, and a few numbers of each request and
    # hash, are kept to the end.
    assert peak(320_000, tmp_path) < 1.6 * peak(160_000, tmp_path)


def test_a_request_of_a_million_tokens_is_checked_in_bounded_memory(tmp_path: Path) -> None:
    tokens = 1 << 20
    asked = {"timestamp": 0, "input_length": tokens - 64, "output_length": 64,
             "hash_ids": list(range(tokens // 512))}  # fmt: skip
    (tmp_path / "one.jsonl").write_text(json.dumps(asked) + "\n")
    path = run(tmp_path, "--preset", "deepseek-v4", "--workload", "one.jsonl")
    code = (
        "import json, re, sys\n"
        "from hkvtool.analyzers.long_check import check_trace\n"
        "from hkvtool.store import open_trace\n"
        "with open_trace(sys.argv[1]) as trace:\n"
        "    report = check_trace(trace).as_json()\n"
        # What the system counts for a child of ours begins with what we take ourselves.
        "peak = int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
        "print(json.dumps([report['findings'], report['ratios']['asked'], peak]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    findings, asked_tokens, kib = json.loads(ended.stdout)
    assert (findings, asked_tokens) == ([], tokens - 64)
    assert kib < 512 << 10


@pytest.mark.soak
def test_a_million_tokens_that_were_offloaded_are_resumed(tmp_path: Path) -> None:
    tokens = 1 << 20
    lines = [
        {"timestamp": 10_000_000 * i, "input_length": tokens - 64, "output_length": 64,
         "hash_ids": list(range(first, first + tokens // 512))}
        for i, first in enumerate((0, 10_000, 0))
    ]  # fmt: skip
    (tmp_path / "three.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    path = run(
        tmp_path, "--preset", "deepseek-v4", "--workload", "three.jsonl", "--blocks", "9000",
        "--cpu-blocks", "20000",
    )  # fmt: skip
    with open_trace(path) as trace:
        assert trace.kinds["load_begin"] > 0
        report = looked_through(trace)
        assert not report.findings and report.ratios.resumable > tokens // 2


def recorded(runs: Path) -> list[dict[str, Any]]:
    """The lines of a run that offloads, as a recorder that is told less might have them."""
    path = runs / "recorded.jsonl"
    if not path.exists():
        with open_trace(run(runs, "--preset", "qwen3-next", "--requests", "12")) as trace:
            path.write_text("".join(json.dumps(dict(e.data)) + "\n" for e in trace.events()))
    return [json.loads(line) for line in path.read_text().splitlines()]


def passes(lines: list[dict[str, Any]], folder: Path) -> bool:
    """Whether the screen lets lines pass; then it says what the rules say."""
    source = folder / "lines.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return bool(passing([source], folder))


def test_a_tier_without_bounds_is_laid_out_as_far_as_it_is_named(
    runs: Path, tmp_path: Path
) -> None:
    lines = recorded(runs)
    tiers = [e for e in lines if e["ev"] == "pool" and e["medium"] != "gpu"]
    assert tiers
    for pool in tiers:
        pool["blocks"] = 1 << 40
    for group in lines:
        if group["ev"] == "group":
            group.get("layout", {}).pop("region_bytes", None)
    assert passes(lines, tmp_path)


def test_a_recording_that_says_that_it_ends_passes(runs: Path, tmp_path: Path) -> None:
    assert passes([*recorded(runs), {"ev": "evidence", "evidence": []}], tmp_path)


def test_evidence_that_changes_is_in_force_from_where_something_follows(
    runs: Path, tmp_path: Path
) -> None:
    lines = recorded(runs)
    middle = len(lines) // 2
    lines.insert(middle, {"ev": "evidence", "evidence": ["host", "step"]})
    assert passes(lines, tmp_path)


def test_engines_that_have_names_resume_each_from_its_own(runs: Path, tmp_path: Path) -> None:
    lines = recorded(runs)
    for line in lines:
        if line["ev"] == "pool" and line["medium"] == "gpu":
            line["engine"] = "one"
    assert passes(lines, tmp_path)


GROUP = {"ev": "group", "form": "compressed", "pool": "gpu", "block_tokens": 16}
DECLARED: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 64},
    {**GROUP, "group": "full"},
    {**GROUP, "group": "more"},
]


def of(req: str, *events: str, **keys: Any) -> list[dict[str, Any]]:
    """Events of a request; lookups and resumes take their keys from `keys`."""
    return [{"ev": ev, "req": req, **keys.get(ev, {})} for ev in events]


def test_groups_that_cost_the_same_are_told_in_one_order(tmp_path: Path) -> None:
    lines = [*DECLARED]
    # The group that is declared last is the first to cost anything.
    for number, hit in enumerate(({"full": 64, "more": 32}, {"full": 32, "more": 64})):
        lines += of(f"r{number}", "admit", "lookup", "finish", lookup={"hit": hit})
    assert passes(lines, tmp_path)


def test_a_lookup_that_the_rules_go_on_with_settles_the_one_before(tmp_path: Path) -> None:
    hit = {"hit": {"full": 32, "more": 32}}
    at = {"at": 16, "route": {"full": "load"}}
    told = of("r", "admit", "resume", "lookup", "abort", lookup=hit, resume=at)
    again = of("r", "admit", "lookup", "resume", "finish", lookup=hit, resume=at)
    assert passes([*DECLARED, *told, *again], tmp_path)


def test_a_resume_says_nothing_of_a_lookup_behind_it(tmp_path: Path) -> None:
    said = {"lookup": {"hit": {"full": 64, "more": 64}}, "resume": {"at": 16}}
    first, then = of("r", "admit", "resume", "finish", **said), of("r", "admit", "lookup", **said)
    assert passes([*DECLARED, *first, *then], tmp_path)
    with open_trace(str(tmp_path / "trace.duckdb")) as trace:
        assert looked_through(trace).ratios.resumable == 64


@pytest.mark.parametrize("altered", ["rest = 'garbage'", "rest = '[1]'", "actor = -7"])
def test_an_altered_event_is_left_to_whoever_decodes_it(altered: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.duckdb"
    synthetic_trace(path, 1_000, pool_blocks=1 << 10)
    with duckdb.connect(str(path)) as connection:
        write = EVENTS["write"].code
        first = f"SELECT min(pos) FROM events WHERE ev = {write}"
        connection.execute(f"UPDATE events SET {altered} WHERE pos = ({first})")
    with open_trace(str(path)) as trace:
        with pytest.raises(Suspicious):
            looked_through(trace)
        with pytest.raises(TraceError):
            check(trace.events())


def test_lookups_resumes_and_steps_are_no_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def told(rows: Rows, batch: Any, row: int) -> Event:
        found = original(rows, batch, row)
        asked.append(found.ev)
        return found

    original = Rows.event
    monkeypatch.setattr(Rows, "event", told)
    synthetic_trace(tmp_path / "trace.duckdb", 3_000, pool_blocks=1 << 10)
    with open_trace(str(tmp_path / "trace.duckdb")) as trace:
        by_screen = looked_through(trace)
        assert asked == ["trace", "pool", "group"]
        by_rules = check(trace.events())
    assert json.dumps(by_screen.as_json()) == json.dumps(by_rules.as_json())
    ours, theirs = (
        list(zip(*[iter(r.ratios.lookups)] * 4, strict=True)) for r in (by_screen, by_rules)
    )
    assert ours == sorted(theirs)
