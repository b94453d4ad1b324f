"""`hkvtool schema`."""

from __future__ import annotations

import json

from hkvtool.model.schema import line_schema


def test_it_prints_the_schema_and_nothing_else(hkvtool) -> None:
    found = hkvtool("schema")
    assert (found.code, found.err) == (0, "")
    assert json.loads(found.out) == line_schema()
