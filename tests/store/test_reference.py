"""The committed page of the store is the one that the code writes."""

from __future__ import annotations

from pathlib import Path

from hkvtool.store.reference import PAGE, page
from hkvtool.store.schema import META, TABLES
from hkvtool.store.views import VIEWS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_page_is_up_to_date() -> None:
    committed = (FOLDER / PAGE).read_text("utf-8")
    assert committed == page(), "run `make docs` and commit docs/reference"


def test_the_page_names_every_table_view_and_fact() -> None:
    text = page()
    for thing in (*TABLES, *VIEWS):
        assert f"### `{thing.name}`" in text
    assert [fact.key for fact in META if f"| `{fact.key}` |" not in text] == []
