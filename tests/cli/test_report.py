"""`hkvtool report`: one file that stands alone, whatever a trace holds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Page(HTMLParser):
    """What a page would fetch, what it runs, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.scripts = 0
        self.unknown: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.fetched += [v for k in ("src", "action", "data") if (v := found.get(k))]
        if tag in ("link", "iframe", "object", "embed", "form"):
            self.unknown.append(tag)
        self.unknown += [name for name in found if name.startswith("on")]
        self.scripts += tag == "script"
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.targets.append(str(found.get("href")))


def page(hkvtool: Any, trace: Path, out: Path) -> tuple[str, Page]:
    outcome = hkvtool("report", str(trace), "-o", str(out), "--force")
    assert outcome.code == 0, outcome.err
    text = out.read_text("utf-8")
    found = Page()
    found.feed(text)
    return text, found


def test_a_report_is_one_file_and_every_link_leads_somewhere(
    hkvtool: Any, cases: Any, tmp_path: Path
) -> None:
    text, found = page(hkvtool, cases["B03"].bad, tmp_path / "r.html")
    assert not found.fetched and not found.unknown and found.scripts == 2
    assert {t.removeprefix("#") for t in found.targets} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert len(text.encode()) < 5_000_000
    assert "HKV703" in text and "realloc-under-writer" in text and "abort-ack-1" in text
    assert (tmp_path / "r.html").stat().st_mode & 0o077 == 0


def test_a_clean_trace_says_what_was_not_judged(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    text, found = page(hkvtool, cases["B03"].good, tmp_path / "r.html")
    assert "HKV705" in text and "Silence is no pass" in text
    assert not [i for i in found.ids if re.fullmatch("F[0-9]+", i)]


def test_what_a_trace_says_is_shown_and_not_run(hkvtool: Any, tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028{{7*7}}"
    lines = [
        {"ev": "trace", "format": "hkv/1", "engine": evil, "evidence": ["host", "step"]},
        {"ev": "pool", "pool": evil, "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": evil, "form": "compressed", "pool": evil, "block_tokens": 16},
        {"ev": "alloc", "req": evil, "group": evil, "blocks": [1]},
        {"ev": "lookup", "req": evil, "hit": {evil: 16}, "tokens": 32},
        {"ev": "resume", "req": evil, "at": 32, "blocks": {evil: [1]}},
    ]
    trace = tmp_path / "t.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text, found = page(hkvtool, trace, tmp_path / "r.html")
    assert found.scripts == 2 and not found.fetched and not found.unknown
    assert "alert(1)</script>" not in text and "49" not in re.findall(r"engine[^<]*", text)
    assert "&lt;/script&gt;" in text


def test_without_its_libraries_it_says_what_to_install(
    hkvtool: Any, cases: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hkvtool.cli.report.find_spec", lambda name: None)
    outcome = hkvtool("report", str(cases["B03"].bad), "-o", str(tmp_path / "r.html"))
    assert outcome.code == 2 and "hkvtool[report]" in outcome.err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")
def test_a_browser_draws_it_without_an_error(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    page(hkvtool, cases["A01"].good, tmp_path / "r.html")
    assert CHROMIUM is not None
    ran = subprocess.run(
        [
            CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
            "--virtual-time-budget=8000", "--dump-dom", (tmp_path / "r.html").as_uri(),
        ],
        capture_output=True, timeout=120,
    )  # fmt: skip
    told = [line for line in ran.stderr.decode().splitlines() if "CONSOLE" in line]
    assert not told
    drawn = ran.stdout.decode()
    assert drawn.count('class="marks"') >= 3, "ratios, groups and at least one pool"
