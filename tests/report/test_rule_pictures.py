"""Every rule of the reference has a picture of what it finds, drawn from its own trace."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from hkvtool.model.rules import RULES
from hkvtool.report.rule_pictures import picture, stories, write

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "reference" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def test_every_rule_has_one_and_it_is_of_that_rule(tmp_path: Path) -> None:
    write(tmp_path / "drawn")
    for folder in (tmp_path / "drawn", COMMITTED):
        assert {f.stem for f in folder.iterdir()} == set(RULES), "run `make docs`"
        for file in folder.iterdir():
            texts = [t.text or "" for t in ET.parse(file).iter(f"{SVG}text")]
            assert texts[0].startswith(f"{file.stem}: ")


def test_dots_lie_on_their_lanes_and_the_bar_is_open_where_an_edge_is_missing() -> None:
    for code, story in stories():
        drawn = ET.fromstring(picture(story))
        dots = list(drawn.iter(f"{SVG}circle"))
        assert len(dots) == len(story.moments)
        axes = [line for line in drawn.iter(f"{SVG}line") if line.get("class") == "axis"]
        assert {d.get("cx") for d in dots} == {a.get("x1") for a in axes}, code
        heights = [int(d.get("cy", "0")) for d in dots]
        assert heights == sorted(set(heights)), "time goes down"
        bars = [line for line in drawn.iter(f"{SVG}line") if line.get("class") != "axis"]
        assert [b.get("class") == "bar open" for b in bars] == [bool(story.finding.edge)] * len(
            bars
        )
        room = int(drawn.get("height", "0"))
        assert max(int(t.get("y", "0")) for t in drawn.iter(f"{SVG}text")) < room
        assert not re.search(r"(href|src)=", picture(story)), "it loads nothing"
