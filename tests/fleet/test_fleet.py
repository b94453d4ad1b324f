"""A fleet on one machine: what counts as an instance, and what is said of all together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from conftest import Case

from hkvtool.fleet.asking import check_instance
from hkvtool.fleet.instances import Instance, instances
from hkvtool.fleet.processes import ask_here
from hkvtool.model.errors import HkvError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def few(tmp_path: Path, cases: dict[str, Case]) -> Path:
    """Two cases with their fault and one without."""
    root = tmp_path / "few"
    for host, path in (("a", cases["A01"].bad), ("b", cases["B01"].bad), ("b", cases["A01"].good)):
        folder = root / f"host={host}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    return root


def checked(run: Run, folder: Path, *args: str) -> dict[str, Any]:
    _, out, _ = run("check", folder, "--format", "json", "--workers", "1", *args)
    said: dict[str, Any] = json.loads(out)
    return said


def test_instances_are_known_by_where_they_lie(few: Path) -> None:
    (few / ".hidden.jsonl").touch()
    (few / "notes.txt").touch()
    assert [(i.name, i.host, i.rank) for i in instances(few)] == [
        ("host=a/A01-bad.jsonl", "a", None),
        ("host=b/A01-good.jsonl", "b", None),
        ("host=b/B01-bad.jsonl", "b", None),
    ]


def test_processes_find_what_one_finds(few: Path) -> None:
    fleet = instances(few)
    here = [check_instance(one) for one in fleet]
    there = list(ask_here(check_instance, fleet, workers=2))
    assert [o.instance for o in there] == fleet
    assert [o.report and o.report.as_json() for o in there] == [
        o.report and o.report.as_json() for o in here
    ]


def test_the_merged_report_is_the_sum_of_its_instances(run: Run, few: Path) -> None:
    said = checked(run, few)
    alone = [(one.name, check_instance(one).report) for one in instances(few)]
    assert said["trace"]["events"] == sum(r.trace["events"] for _, r in alone if r)
    assert [(f["instance"], f["id"]) for f in said["findings"]] == [
        (name, f"{name}:{f.id}") for name, report in alone if report for f in report.findings
    ]
    assert said["ratios"]["asked"] == sum(r.ratios.asked for _, r in alone if r)
    assert said["summary"]["error"] == 2
    [blind] = [one for one in said["not_evaluable"] if one["code"] == "HKV201"]
    assert blind == {"code": "HKV201", "needs": ["layout"], "instances": 3}


def test_rules_can_be_left_out(run: Run, few: Path) -> None:
    assert {f["code"] for f in checked(run, few, "--only", "HKV703")["findings"]} == {"HKV703"}
    assert run("check", few, "--only", "HKV201", "--workers", "1")[0] == 0


def test_what_cannot_be_read_costs_the_others_nothing(run: Run, few: Path) -> None:
    (few / "broken.duckdb").write_bytes(b"\0" * 100)
    code, out, err = run("check", few, "--format", "json", "--workers", "1")
    said = json.loads(out)
    assert code == 3
    assert "broken.duckdb" in err
    (failed,) = [a for a in said["trace"]["instances"] if "error" in a]
    assert failed["instance"] == "broken.duckdb" and "import --help" in failed["hint"]
    assert said["summary"]["error"] == 2


@pytest.mark.parametrize("format", ["table", "json", "junit", "github", "sarif"])
def test_what_to_do_about_one_that_cannot_be_read_is_said(
    format: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "broken.duckdb").write_bytes(b"\0" * 100)
    (tmp_path / "empty.jsonl").write_text('{"ev": "trace", "format": "hkv/1"}\n')
    hint = "import --help"
    for ask in (["check"], ["why"]):
        if ask == ["why"] and format not in ("table", "json"):
            continue
        which = ["nobody"] if ask == ["why"] else []
        code, out, err = run(*ask, tmp_path, *which, "--format", format, "--workers", "1")
        assert code == 3 and hint in out and hint in err, ask


def test_the_page_says_what_to_do_about_one_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "broken.duckdb").write_bytes(b"\0" * 100)
    page = tmp_path / "fleet.html"
    code, _, err = run("report", tmp_path / "fleet", "-o", page, "--workers", "1")
    assert code == 3 and "import --help" in err and "import --help" in page.read_text()


def test_one_that_wants_too_much_memory_is_told_what_else_can_be_done(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hungry(path: str) -> None:
        raise MemoryError

    monkeypatch.setattr("hkvtool.fleet.asking.open_instance", hungry)
    (tmp_path / "one.jsonl").write_text('{"ev": "trace", "format": "hkv/1"}\n')
    # Of one instance the question is asked here, in no process of its own.
    code, out, err = run("check", tmp_path)
    assert code == 3 and "more memory" in out and "fewer --workers" in err


def test_ingested_it_is_the_same_fleet(run: Run, few: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for host in ("a", "b"):
        sources = sorted((few / f"host={host}").iterdir())
        assert run("ingest", *sources, "-o", kept, "--host", host, "--workers", "1")[0] == 0
    fleet = instances(kept)
    assert [(one.host, one.rank) for one in fleet] == [("a", "0"), ("b", "0"), ("b", "0")]
    assert all(one.time for one in fleet)

    def bare(said: dict[str, Any]) -> list[Any]:
        of_name = ("instance", "id", "cause", "caused")
        return [{k: v for k, v in f.items() if k not in of_name} for f in said["findings"]]

    assert bare(checked(run, kept)) == bare(checked(run, few))
    code, out, _ = run(
        "query", kept, "SELECT host, count(*) AS n FROM event_log WHERE ev = 'alloc' "
        "GROUP BY host ORDER BY host", "--format", "json",
    )  # fmt: skip
    assert code == 0
    assert [row["host"] for row in json.loads(out)] == ["a", "b"]


def test_a_query_reaches_the_fleet_and_nothing_else(run: Run, few: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    run("ingest", few / "host=a" / "A01-bad.jsonl", "-o", kept, "--workers", "1")
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    assert run("query", kept, f"SELECT * FROM read_csv('{other}')")[0] == 2
    assert run("query", kept, "CREATE TABLE t (a INT)")[0] == 2
    code, _, err = run("query", few, "SELECT 1")
    assert code == 2
    assert "fleet ingest" in err


def test_why_finds_the_instances_of_a_request(run: Run, few: Path) -> None:
    code, out, _ = run("why", few, "r2", "--format", "json", "--workers", "1")
    assert code == 1
    found = {one["instance"]: one["verdict"] for one in json.loads(out)}
    assert set(found) == {"host=a/A01-bad.jsonl", "host=b/A01-good.jsonl"}
    assert found["host=a/A01-bad.jsonl"] == "not-resumable-but-resumed"
    assert run("why", few, "nobody", "--workers", "1")[0] == 2


class _Parsed(HTMLParser):
    """The tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_a_report_escapes_what_instances_are_called(run: Run, few: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    (few / "host=a" / "A01-bad.jsonl").rename(few / "<script>alert(1)<img>.jsonl")
    page = tmp_path / "r.html"
    assert run("report", few, "-o", page, "--workers", "1")[0] == 0
    text = page.read_text()
    tags = _Parsed(text).tags
    assert "script" not in tags
    assert "img" not in tags
    assert "HKV703" in text
    assert "http" not in text.replace("http-equiv", "")


def test_an_empty_folder_is_no_fleet(run: Run, tmp_path: Path) -> None:
    code, _, err = run("check", tmp_path)
    assert code == 3
    assert "fleet ingest" in err


def test_a_killed_process_is_told(few: Path) -> None:
    with pytest.raises(HkvError, match="was killed before host=a"):
        list(ask_here(_killed, instances(few), workers=2))


def _killed(instance: Instance) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def tier(path: Path, **layout: Any) -> None:
    """An engine that keeps a copy of its history on a pool called `remote`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    events = [
        {"ev": "trace", "format": "hkv/1", "evidence": ["host", "layout"]},
        {"ev": "pool", "pool": "remote", "medium": "remote", "blocks": 64},
        {"ev": "pool", "pool": "local", "medium": "disk", "blocks": 64},
        {"ev": "group", "group": "kv.remote", "form": "compressed", "pool": "remote",
         "block_tokens": 16, "participates": False,
         "layout": {"dtype": "bfloat16", "row_bytes": 2048, "tp_shard": 0, **layout}},
        {"ev": "group", "group": "kv.local", "form": "compressed", "pool": "local",
         "block_tokens": 16, "participates": False,
         "layout": {"dtype": "bfloat16", "row_bytes": 2048, **layout}},
    ]  # fmt: skip
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_engines_that_share_a_tier_must_mean_the_same_by_it(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "tiers"
    for number in range(3):
        tier(root / f"e{number}.jsonl", tp_shard=number)
    alike = run("check", root, "--shared", "remote", "--format", "json", "--workers", "1")
    assert (alike[0], json.loads(alike[1])["findings"]) == (0, [])
    tier(root / "e3.jsonl", dtype="fp8_e4m3", row_bytes=1024, hash="sha256/7")
    tier(root / "e4.jsonl", hash="sha256/7")
    apart = run("check", root, "--shared", "remote", "--format", "json", "--workers", "1")
    said = json.loads(apart[1])
    assert apart[0] == 1
    # e4 says how it hashes and the others do not: that is no disagreement.
    assert [(f["instance"], f["code"], f["pool"], f["events"]) for f in said["findings"]] == [
        ("e3.jsonl", "HKV201", "remote", [4])
    ]
    [found] = said["findings"]
    assert found["against"] == {"instance": "e0.jsonl", "event": 4}
    assert found["believed"] == {"dtype": "fp8_e4m3", "row_bytes": 1024}
    assert said["summary"]["error"] == 1
    assert "HKV201" in run("check", root, "--shared", "remote", "--workers", "1")[1]


def test_a_pool_that_is_not_said_to_be_shared_is_each_engines_own(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "tiers"
    tier(root / "a.jsonl")
    tier(root / "b.jsonl", dtype="fp8_e4m3")
    code, out, _ = run("check", root, "--workers", "1")
    assert code == 0
    assert "between instances nothing was evaluated" in out


def test_a_shared_pool_that_nobody_has_was_not_judged(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "tiers"
    tier(root / "a.jsonl")
    tier(root / "b.jsonl")
    code, out, _ = run("check", root, "--shared", "remtoe", "--shared", "remote", "--workers", "1")
    assert code == 4
    assert "inconclusive: no instance declares a pool remtoe" in out
    assert "declares a pool remote" not in out


def test_what_is_no_file_is_no_instance(few: Path) -> None:
    os.mkfifo(few / "waits.jsonl")
    (few / "nowhere.jsonl").symlink_to("gone")
    assert [i.name for i in instances(few) if "/" not in i.name] == ["nowhere.jsonl"]


def test_a_name_that_is_not_in_utf8(few: Path, run: Run) -> None:
    shutil.copy(few / "host=a" / "A01-bad.jsonl", few / "odd\udcff\x1b[31m.jsonl")
    report = few / "f.html"
    assert run("report", few, "-o", report, "--workers", "1")[0] == 0
    assert "<code>odd\\udcff\\x1b[31m.jsonl</code>" in report.read_text()
    for form in ("sarif", "junit", "github", "json", "table"):
        assert run("check", few, "--format", form, "--workers", "1")[0] == 1


def test_clocks_are_not_endlessly_apart(few: Path, run: Run) -> None:
    code, _, err = run("check", few, "--direct", "--skew", "inf")
    assert code == 2 and "milliseconds" in err


ASKS = """
import time
from hkvtool.fleet.instances import Instance
from hkvtool.fleet.processes import ask_here

def asked(instance):
    print("asked", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    list(ask_here(asked, [Instance(str(n), str(n)) for n in range(2)], workers=2))
"""


def test_no_process_outlives_one_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    asking = subprocess.Popen(
        [sys.executable, "asks.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert asking.stdout is not None
    assert [asking.stdout.readline() for _ in range(2)] == ["asked\n"] * 2
    asking.kill()
    # The end of what they print comes when none of them is left.
    assert asking.communicate(timeout=60)[0] == ""
