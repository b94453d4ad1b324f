"""The committed reference pages are those that the code writes."""

from __future__ import annotations

from pathlib import Path

from hkvtool.model.events import EVENTS
from hkvtool.model.reference import pages, write
from hkvtool.model.rules import RULES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_pages_are_up_to_date() -> None:
    committed = {name: (FOLDER / name).read_text("utf-8") for name in pages()}
    assert committed == pages(), "run `make docs` and commit docs/reference"


def test_pages_name_every_event_and_rule() -> None:
    text = pages()
    assert [name for name in EVENTS if f"\n## `{name}`\n" not in text["events.md"]] == []
    assert [code for code in RULES if f"\n### {code} " not in text["rules.md"]] == []


def test_write_makes_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b")
    assert {p.name for p in (tmp_path / "a" / "b").iterdir()} == set(pages())
