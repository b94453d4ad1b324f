"""A fleet asked in SQL: the events of every instance in one view."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from hkvtool.fleet.instances import PARTITIONS, Instance
from hkvtool.model.errors import HkvError
from hkvtool.store.parquet import is_ours

VIEW = "event_log"
"""As the view of a single trace is called; it has `host`, `rank`, `time` and `instance` besides."""


class FleetTables:
    """A DuckDB that reaches the Parquet files of a fleet and nothing else. A context."""

    def __init__(self, fleet: Sequence[Instance]) -> None:
        import duckdb

        others = [i for i in fleet if not (i.path.endswith(".parquet") and is_ours(i.path))]
        if others:
            raise HkvError(
                f"{others[0].name} is not Parquet that hkvtool wrote; SQL over a fleet reads that",
                hint="`hkvtool fleet ingest FOLDER/* -o OTHER` makes it of traces and recordings",
            )
        self._con = duckdb.connect(":memory:")
        paths = [os.path.abspath(instance.path) for instance in fleet]
        listed = ", ".join(map(_quoted, paths))
        self._con.execute(f"SET allowed_paths = [{listed}]")
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            self._con.execute(f"SET {setting}")
        self._con.execute(
            "CREATE TABLE instances (file VARCHAR, instance VARCHAR, "
            + ", ".join(f'"{name}" VARCHAR' for name in PARTITIONS) + ")"
        )  # fmt: skip
        self._con.executemany(
            "INSERT INTO instances VALUES (?, ?, ?, ?, ?)",
            [
                (path, i.name, i.host, i.rank, i.time)
                for path, i in zip(paths, fleet, strict=True)
            ],
        )  # fmt: skip
        self._con.execute(
            f"CREATE VIEW {VIEW} AS SELECT i.instance, i.host, i.rank, i.time, "
            'e.* EXCLUDE (file) FROM (SELECT * RENAME (filename AS "file") FROM read_parquet('
            f"[{listed}], filename = true, union_by_name = true, hive_partitioning = false)) e "
            'JOIN instances i ON i."file" = e."file"'
        )

    def select(self, query: str) -> Any:
        """The result of a query, as DuckDB gives it. DuckDB's errors pass through."""
        return self._con.cursor().execute(query)

    def __enter__(self) -> FleetTables:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._con.close()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
