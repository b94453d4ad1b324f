"""Every output on the page `docs/checking.md` is what the command prints."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report import told

from hkvtool.model.shipped import shipped

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checking.md"


def shown() -> Iterator[tuple[str, str]]:
    """Each command of the page with the output under it."""
    for block in re.findall(r"^```\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S):
        for part in re.split(r"^\$ hkvtool ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


COMMANDS = [(c, o) for c, o in shown() if "run.jsonl" not in c.split()]
"""But those of a run of the reference engine, which takes a minute and names addresses."""


@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_a_command_prints_what_the_page_shows(
    hkvtool: Any, cases: Any, tmp_path: Path, monkeypatch: Any, command: str, output: str
) -> None:
    for id, arm in re.findall(r"([A-Z]\d\d)-(bad|good)\.jsonl", command):
        source = getattr(cases[id], arm)
        (tmp_path / f"{id}-{arm}.jsonl").write_bytes(source.read_bytes())
    for config in Path(str(shipped("configs"))).glob("*.json"):
        (tmp_path / config.name).write_bytes(config.read_bytes())
    lines = [json.dumps(dict(e.data)) + "\n" for e in told.spread()]
    (tmp_path / "wrong.jsonl").write_text("".join(lines))
    monkeypatch.chdir(tmp_path)
    assert hkvtool(*shlex.split(command)).out == output


def test_the_page_shows_every_way_to_ask() -> None:
    asked = {c.split()[0] for c, _ in shown()}
    assert {"why", "explain", "diff", "preflight", "ratios", "check"} <= asked
