"""import, export, info, events, block, request and sql, as a person uses them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hkvtool.cli.traces import print_table
from hkvtool.model.errors import Exit
from hkvtool.model.jsonl import read_jsonl
from hkvtool.store import open_trace

LINES: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1", "engine": "vllm", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 64, "reserved": [0], "ts": 5_000_000},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    {"ev": "group", "group": "swa", "form": "swa", "pool": "gpu", "block_tokens": 16, "window": 64},
    {"ev": "admit", "req": "r1", "external": "chat-1", "ts": 6_500_000},
    {"ev": "alloc", "req": "r1", "group": "kv", "blocks": [7, 8]},
    {"ev": "dispatch", "step": 1, "reqs": ["r1"]},
    {"ev": "write", "req": "r1", "group": "kv", "blocks": [7, 8], "tokens": [0, 20], "step": 1},
    {"ev": "evict", "blocks": [9]},
    {"ev": "free", "req": "r1", "group": "kv", "blocks": [8, 7], "note": "[red]\x1b[31m\u202e"},
    {"ev": "finish", "req": "r1"},
    {"ev": "alloc", "req": "r2", "group": "kv", "blocks": [7]},
]


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return str(path)


@pytest.fixture(params=["jsonl", "duckdb"])
def trace(request: pytest.FixtureRequest, hkvtool, source: str) -> str:
    """The trace as lines, and as DuckDB: every command takes both."""
    if request.param == "jsonl":
        return source
    assert hkvtool("import", source).code == 0
    return source.replace(".jsonl", ".duckdb")


def test_import_says_what_it_made(hkvtool, source: str, tmp_path: Path) -> None:
    found = hkvtool("import", source)
    target = tmp_path / "t.duckdb"
    assert (found.code, found.out) == (0, "")
    assert found.err == f"{target}: 12 events, 1 of them malformed (HKV905)\n"
    with open_trace(target) as opened:
        assert opened.count == len(LINES)
    again = hkvtool("import", source)
    assert again.code == Exit.USAGE and "exists already" in again.err and "--force" in again.err
    assert hkvtool("import", source, "--force").code == 0
    assert hkvtool("import", source, "-o", str(tmp_path / "o.duckdb")).code == 0


def test_export_gives_the_lines_back(hkvtool, trace: str, tmp_path: Path) -> None:
    found = hkvtool("export", trace, "-o", str(tmp_path / "back.jsonl"))
    assert (found.code, found.out) == (0, "")
    assert found.err == f"{tmp_path / 'back.jsonl'}: 12 events\n"
    with open(tmp_path / "back.jsonl", "rb") as stream:
        assert [dict(event.data) for event in read_jsonl(stream)] == LINES
    assert hkvtool("export", trace, "-o", str(tmp_path / "back.jsonl")).code == Exit.USAGE


def test_export_to_stdout_and_gzipped(process, hkvtool, source: str, tmp_path: Path) -> None:
    out, err = process("export", source).communicate()
    assert [json.loads(line) for line in out.splitlines()] == LINES and err == b""
    assert hkvtool("export", source, "-o", str(tmp_path / "z.jsonl.gz")).code == 0
    with open_trace(tmp_path / "z.jsonl.gz") as opened:
        assert opened.count == len(LINES)


def test_export_as_parquet_comes_back(hkvtool, trace: str, tmp_path: Path) -> None:
    parquet, back = str(tmp_path / "t.parquet"), str(tmp_path / "back.duckdb")
    assert "is written to a file" in hkvtool("export", trace, "--format", "parquet").err
    assert hkvtool("export", trace, "--format", "parquet", "-o", parquet).code == 0
    assert hkvtool("import", parquet, "-o", back).code == 0
    with open_trace(back) as opened:
        assert [dict(event.data) for event in opened.events()] == LINES


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_trace_is_not_replaced_by_its_export(hkvtool, trace: str, form: str) -> None:
    before = Path(trace).read_bytes()
    found = hkvtool("export", trace, "-o", trace, "--force", "--format", form)
    assert found.code == Exit.USAGE and "would be overwritten by its own export" in found.err
    assert Path(trace).read_bytes() == before


def test_info_says_what_the_trace_holds(hkvtool, trace: str) -> None:
    found = hkvtool("info", trace)
    assert (found.code, found.err) == (0, "")
    words = " ".join(found.out.split())
    for fact in (
        f"{trace}: 12 events",
        "engine vllm",
        "evidence host, step (declared)",
        "span positions 1 to 12, 0.001500 s",
        "requests 2",
        "gpu gpu 64 [0]",
        "kv compressed gpu 16",
        "swa swa gpu 16 64",
        "sched 10 device 1",
        "alloc 2",
        "malformed (HKV905): 1 event",
        "9 evict blocks=[9] ! unknown event 'evict'",
    ):
        assert fact in words, fact


def test_info_as_json(hkvtool, trace: str) -> None:
    facts = json.loads(hkvtool("info", trace, "--format", "json").out)
    assert facts["events"] == sum(facts["kinds"].values()) == 12
    assert facts["kinds"]["?"] == 1 and "reset" not in facts["kinds"]
    assert facts["pools"] == [LINES[1]] and facts["groups"] == LINES[2:4]
    assert facts["lanes"] == {"sched": 10, "device": 1}


def positions(text: str) -> list[int]:
    return [int(line.split()[0]) for line in text.splitlines()[1:]]


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ([], list(range(1, 13))),
        (["--req", "r1"], [5, 6, 7, 8, 10, 11]),
        (["--block", "gpu:7"], [6, 8, 10, 12]),
        (["--block", "7", "--since", "7", "--until", "10"], [8, 10]),
        (["--kind", "alloc", "--kind", "finish"], [6, 11, 12]),
        (["--kind", "?"], [9]),
        (["--kind", "evict"], [9]),
        (["--since", "11"], [11, 12]),
    ],
)
def test_events_are_filtered(hkvtool, trace: str, args: list[str], found: list[int]) -> None:
    outcome = hkvtool("events", trace, *args)
    assert (outcome.code, outcome.err) == (0, "")
    assert positions(outcome.out) == found


def test_events_as_they_were_written(hkvtool, trace: str) -> None:
    found = hkvtool("events", trace, "--format", "jsonl", "--since", "5")
    assert [json.loads(line) for line in found.out.splitlines()] == LINES[4:]
    assert found.out.isascii() and "\x1b" not in found.out


def test_events_in_a_table_show_no_control_character(hkvtool, trace: str) -> None:
    out = hkvtool("events", trace).out
    assert "[red]\\x1b[31m\\u202e" in out
    assert all(c.isprintable() or c == "\n" for c in out)
    assert "  0.000  pool" in out and "  1.500  admit" in out


def test_events_say_where_they_stop(hkvtool, trace: str) -> None:
    found = hkvtool("events", trace, "--limit", "3")
    assert positions(found.out) == [1, 2, 3]
    assert found.err == "the first 3 events are shown; --limit 0 shows all\n"
    assert hkvtool("events", trace, "--limit", "12").err == ""
    lines = hkvtool("events", trace, "--format", "jsonl", "--limit", "2")
    assert len(lines.out.splitlines()) == 2 and "the first 2 events" in lines.err


def test_nothing_found_is_said(hkvtool, trace: str) -> None:
    assert hkvtool("events", trace, "--req", "r9").err == "no event fits\n"
    found = hkvtool("events", trace, "--kind", "aloc")
    assert found.err == "no event fits; 'aloc' is no kind of event; did you mean 'alloc'?\n"


@pytest.mark.parametrize(
    ("block", "what", "hint"),
    [
        ("cpu:7", "there is no pool 'cpu'", "pools here: gpu"),
        ("gpu:x", "'gpu:x' names no block", "POOL:ID"),
        ("gpu:63", "no event names block gpu:63", ""),
    ],
)
def test_a_block_that_is_none_is_told(hkvtool, trace, block: str, what: str, hint: str) -> None:
    found = hkvtool("block", trace, block)
    assert found.code == Exit.USAGE and found.out == ""
    assert what in found.err and hint in found.err


def test_block_tells_generation_by_generation(hkvtool, trace: str) -> None:
    out = hkvtool("block", trace, "gpu:7").out
    first, second, state = out.split("\n\n")
    assert first.splitlines()[0] == "gpu:7  generation 1"
    assert [line.split()[0] for line in first.splitlines()[1:]] == ["6", "8", "10"]
    assert second.splitlines()[0] == "gpu:7  generation 2"
    assert [line.split()[0] for line in second.splitlines()[1:]] == ["12"]
    rows = {line.split()[0]: line.split()[1:] for line in state.splitlines()[2:]}
    assert state.startswith("state at 12\n") and state.splitlines()[1].split() == ["kv"]
    assert rows["generation"] == ["2"] and rows["references"] == ["1"]


def test_block_at_a_position(hkvtool, trace: str) -> None:
    out = hkvtool("block", trace, "gpu:7", "--at", "9").out
    assert "generation 2" not in out and "state at 9" in out
    rows = [line.split() for line in out.split("state at 9\n")[1].splitlines()]
    assert ["written", "16"] in rows, "of the groups of its block table only"
    assert rows[-1] == ["recoverable", "yes"]
    assert "no event names" in hkvtool("block", trace, "gpu:7", "--at", "3").err


def test_request_tells_how_it_went(hkvtool, trace: str) -> None:
    out = hkvtool("request", trace, "r1").out
    assert out.startswith("r1: finished at 11\n")
    assert "external  chat-1" in out and "steps     1" in out
    assert positions(out.split("\n\n")[-1]) == [5, 6, 7, 8, 10, 11]
    assert hkvtool("request", trace, "r2").out.startswith("r2: has not ended\n")


def test_request_shows_hits_group_by_group(hkvtool, cases) -> None:
    out = hkvtool("request", str(cases["S23"].bad), "r2").out
    assert "14  lookup      70  kv      64         [8]" in out
    assert "18  resume      64  kv          reuse  [8]" in out


def test_an_unknown_request_is_told(hkvtool, trace: str) -> None:
    found = hkvtool("request", trace, "r11")
    assert found.code == Exit.USAGE
    assert "no event names a request 'r11'" in found.err and "did you mean 'r1'?" in found.err
    assert "requests here: r1, r2" in hkvtool("request", trace, "zzz").err


def test_sql_in_every_format(hkvtool, trace: str) -> None:
    query = "SELECT pos, ev, blocks, problem FROM event_log WHERE pos IN (8, 9)"
    table = hkvtool("sql", trace, query)
    assert [line.split() for line in table.out.splitlines()] == [
        ["pos", "ev", "blocks", "problem"],
        ["8", "write", "[7,", "8]"],
        ["9", "?", "unknown", "event", "'evict'"],
    ]
    rows = json.loads(hkvtool("sql", trace, query, "--format", "json").out)
    assert rows[0] == {"pos": 8, "ev": "write", "blocks": [7, 8], "problem": None}
    found = list(csv.reader(io.StringIO(hkvtool("sql", trace, query, "--format", "csv").out)))
    assert found[1] == ["8", "write", "[7, 8]", ""]


def test_sql_values_of_every_sort(hkvtool, source: str) -> None:
    query = (
        "SELECT 1 AS a, 2 AS a, 'nan'::DOUBLE AS n, true AS t, {'x': [1.5]} AS s, "
        "DATE '2026-01-02' AS d, 170141183460469231731687303715884105727 AS h, NULL AS z"
    )
    (row,) = json.loads(hkvtool("sql", source, query, "--format", "json").out)
    assert row == {
        "a": 1, "a_2": 2, "n": None, "t": True, "s": {"x": [1.5]}, "d": "2026-01-02",
        "h": 170141183460469231731687303715884105727, "z": None,
    }  # fmt: skip
    assert hkvtool("sql", source, "SELECT 1 WHERE false", "--format", "json").out == "[]\n"
    assert hkvtool("sql", source, "SELECT 1 AS one WHERE false").out == "  one\n"


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_sql_says_where_it_stops(hkvtool, source: str, form: str) -> None:
    args = ("sql", source, "SELECT pos FROM events", "--format", form, "--limit", "2")
    found = hkvtool(*args)
    assert found.err == "the first 2 rows are shown; --limit 0 shows all\n"
    assert hkvtool(*args[:-1], "0").err == ""


@pytest.mark.parametrize(
    ("query", "what", "hint"),
    [
        ("COPY events TO 'x.csv'", "a query is one SELECT", "only read"),
        ("SELECT 1; SELECT 2", "a query is one SELECT", ""),
        ("ATTACH 'x.duckdb'", "a query is one SELECT", ""),
        ("INSTALL httpfs", "a query is one SELECT", ""),
        ("", "a query is one SELECT", ""),
        ("SELECT * FROM read_csv('/etc/passwd')", "Permission Error", "nothing else"),
        ("SELECT * FROM '/etc/passwd'", "does not exist", ""),
        ("SELECT group FROM events", "syntax error", 'write the column as "group"'),
        ("SELEC", "syntax error", ""),
        ("SELECT * FROM evens", "does not exist", 'Did you mean "events'),
        ("SELECT nope FROM events", "not found", "Candidate bindings"),
        ("SELECT error('x\x1b[31m')", "x\\x1b[31m", ""),
    ],
)
def test_a_query_that_fails_is_told(hkvtool, source, query: str, what: str, hint: str) -> None:
    found = hkvtool("sql", source, query)
    assert found.code == Exit.USAGE and found.out == ""
    assert what in found.err and hint in found.err and "Traceback" not in found.err


@pytest.mark.parametrize("command", ["info", "events", "export", "sql", "block", "request"])
def test_an_unreadable_trace_is_exit_3(hkvtool, tmp_path: Path, command: str) -> None:
    more = {"sql": ["SELECT 1"], "block": ["gpu:1"], "request": ["r"]}.get(command, [])
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "cut.duckdb").write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 90)
    for name in ("empty.jsonl", "cut.duckdb", "none.jsonl", "."):
        found = hkvtool(command, str(tmp_path / name), *more)
        assert (found.code, found.out) == (Exit.UNREADABLE, "")
        assert found.err.startswith("error: ") and "Traceback" not in found.err


def test_stdin_is_a_trace(process, tmp_path: Path, source: str) -> None:
    import subprocess
    import sys

    text = Path(source).read_bytes()
    for args in (["info", "-"], ["sql", "-", "SELECT count(*) AS n FROM events"], ["events", "-"]):
        done = subprocess.run(
            [sys.executable, "-m", "hkvtool", *args], input=text, cwd=tmp_path, capture_output=True
        )
        assert done.returncode == 0 and b"12" in done.stdout, done
    done = subprocess.run(
        [sys.executable, "-m", "hkvtool", "import", "-", "-o", "stdin.duckdb"],
        input=text,
        cwd=tmp_path,
        capture_output=True,
    )
    assert done.returncode == 0 and (tmp_path / "stdin.duckdb").exists()


@pytest.mark.parametrize(
    ("args", "redirect", "code", "says"),
    [
        ("check -", "</dev/null", 3, "standard input is empty"),
        ("info -", "<t.duckdb", 3, "a DuckDB trace must be given by its path"),
        ("import - -o u.duckdb", "<t.duckdb", 3, "a DuckDB trace must be given by its path"),
        ("check -", "<noise", 3, "neither a DuckDB trace nor JSON lines"),
        ("check -", "<&-", 3, "standard input is closed"),
        ("import - -o u.duckdb", "<&-", 3, "standard input is closed"),
        ("check - -", "<&-", 2, "standard input is named twice"),
        ("import - - -o u.duckdb", "<&-", 2, "standard input is named twice"),
        ("import - -o u.duckdb", "<t.gz", 0, "u.duckdb: 12 events"),
    ],
)
def test_stdin_is_judged_as_a_file_is(
    hkvtool, tmp_path: Path, source: str, args: str, redirect: str, code: int, says: str
) -> None:
    import gzip
    import subprocess
    import sys

    assert hkvtool("import", source, "-o", str(tmp_path / "t.duckdb")).code == 0
    (tmp_path / "noise").write_bytes(b"\x7fELF\x02\x01\0\0" * 1000)
    (tmp_path / "t.gz").write_bytes(gzip.compress(Path(source).read_bytes()))
    line = f'"{sys.executable}" -m hkvtool {args} {redirect}'
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [
        (signal.SIGINT, Exit.INTERRUPTED, b"interrupted"),
        (signal.SIGTERM, Exit.TERMINATED, b"terminated"),
    ],
)
def test_an_interrupted_query_ends_at_once(
    process, source: str, number: int, code: int, says: bytes
) -> None:
    endless = "WITH RECURSIVE t(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM t) SELECT max(a) FROM t"
    child = process("sql", source, endless)
    ready = Path(f"/proc/{child.pid}/maps")
    while "_duckdb" not in ready.read_text():
        assert child.poll() is None
        os.sched_yield()
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out, err.strip()) == (code, b"", says)


def test_a_reader_that_goes_away_is_no_error(process, source: str) -> None:
    child = process("events", source)
    child.stdout.close()
    assert b"Traceback" not in child.stderr.read()
    child.wait(30)


def on_a_screen(*args: str) -> list[str]:
    """What a terminal of 60 columns receives, line by line."""
    import subprocess
    import sys

    leader, follower = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "hkvtool", *args],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "60"},
    )
    os.close(follower)
    received = b""
    while True:
        try:
            data = os.read(leader, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not data:
            break
        received += data
    os.close(leader)
    assert child.wait(30) == 0
    return received.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize(
    "args",
    [
        ["events"],
        ["events", "--format", "jsonl"],
        ["export"],
        ["info"],
        ["sql", "SELECT * FROM event_log"],
        ["sql", "SELECT * FROM events", "--format", "csv"],
    ],
)
def test_a_terminal_receives_nothing_that_it_would_act_on(tmp_path: Path, args) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES) + "bad \x1b[31m\u202e\n")
    lines = on_a_screen(args[0], str(path), *args[1:])
    assert len(lines) > 5
    assert [line for line in lines if not line.isprintable()] == []


def test_a_narrow_terminal_cuts_lines_and_stands_tables_upright(source: str) -> None:
    events = on_a_screen("events", source)
    assert max(map(len, events)) == 60 and any(line.endswith("…") for line in events)
    rows = on_a_screen("sql", source, "SELECT * FROM event_log WHERE pos = 8")
    assert rows[0] == "row 1"
    assert "  blocks      [7, 8]" in rows
    assert on_a_screen("sql", source, "SELECT 1 AS one")[0].strip() == "one"


def test_tables_align(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("a\n", 5), (None, 12345)])
    assert capsys.readouterr().out == "  name      n\n  a\\n       5\n        12345\n"
