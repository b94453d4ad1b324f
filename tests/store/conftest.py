"""Traces to read and to write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hkvtool.store.importing import import_traces

Line = dict[str, Any] | str


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., str]:
    """Write lines, given as objects or as text, to a file; returns its path."""

    def write(lines: Iterable[Line], name: str = "trace.jsonl") -> str:
        path = tmp_path / name
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """The DuckDB trace of a file that no test changes, imported once."""

    @cache
    def of(source: Path) -> str:
        path = tmp_path_factory.mktemp("imported") / "trace.duckdb"
        import_traces([str(source)], path)
        return str(path)

    return of


@pytest.fixture
def duckdb_of(tmp_path: Path) -> Callable[..., str]:
    """Import files into a DuckDB trace; returns its path."""

    def make(*sources: str | Path) -> str:
        path = tmp_path / "made.duckdb"
        import_traces([str(source) for source in sources], path, force=True)
        return str(path)

    return make
