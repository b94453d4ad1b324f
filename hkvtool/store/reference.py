"""The reference page of the DuckDB trace, written from its definition.

``python -m hkvtool.store.reference docs/reference`` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hkvtool.store.schema import META, SCHEMA_VERSION, STORAGE_VERSION, TABLES
from hkvtool.store.views import VIEWS

PAGE = "store.md"


def page() -> str:
    """The page as Markdown."""
    return "\n".join(_page()).rstrip() + "\n"


def _page() -> Iterator[str]:
    yield "<!-- Made from the code by `make docs`; edit hkvtool/store instead. -->"
    yield ""
    yield "# The DuckDB trace"
    yield ""
    yield f"Schema version {SCHEMA_VERSION}. A trace is one DuckDB file; any DuckDB client from"
    yield f"{STORAGE_VERSION} on can open it. `hkvtool sql TRACE 'SELECT ...'` asks it in SQL"
    yield "without any way to reach another file:"
    yield ""
    yield "```sql"
    yield "SELECT pos, ev, req, blocks FROM event_log WHERE \"group\" = 'swa0' AND req = 'r7';"
    yield "```"
    yield ""
    yield "`group` is a word of SQL and needs its double quotes. An hkvtool reads traces of its own"
    yield "schema version, older ones that have all of these columns, and no newer ones."
    yield ""
    yield "## Views"
    for view in VIEWS:
        yield ""
        yield f"### `{view.name}`"
        yield ""
        yield view.doc
        yield ""
        yield from _table(("column", "meaning"), view.columns.items())
    yield ""
    yield "## Tables"
    for table in TABLES:
        yield ""
        yield f"### `{table.name}`"
        yield ""
        yield table.doc
        yield ""
        rows = ((c.name, f"`{c.type}`", c.doc) for c in table.columns)
        yield from _table(("column", "type", "meaning"), rows)
    yield ""
    yield "## Keys of `meta`"
    yield ""
    yield "A fact that is not known has no row."
    yield ""
    yield from _table(("key", "value", "meaning"), ((f.key, f.kind, f.doc) for f in META))


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * len(headings)
    for first, *others in rows:
        yield "| " + " | ".join([f"`{first}`", *others]) + " |"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(page(), encoding="utf-8")
