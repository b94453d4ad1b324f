"""The table `names` of a DuckDB trace."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.model.errors import TraceError
from hkvtool.store.connect import Connection, explained
from hkvtool.store.stored_names import restored, stored


class NameRows:
    """Names and numbers as they are asked for, each time from the file."""

    def __init__(self, path: str, con: Connection) -> None:
        self._path, self._con = path, con

    def counts(self) -> dict[str, int]:
        """Names by domain."""
        with explained(self._path):
            rows = self._con.cursor().execute("SELECT domain, count(*) FROM names GROUP BY domain")
            return dict(rows.fetchall())

    def fetch(self, domain: str, first: int, end: int) -> list[str | int]:
        """Names by number, from the first up to but not the last."""
        with explained(self._path):
            rows = self._con.cursor().execute(
                "SELECT name, is_int, escaped FROM names "
                "WHERE domain = ? AND id >= ? AND id < ? ORDER BY id",
                [domain, first, end],
            )
            found = [self._restored(domain, *row) for row in rows.fetchall()]
        if len(found) != end - first:
            raise TraceError(f"{self._path}: names of {domain} are missing")
        return found

    def numbers(self, domain: str, names: Sequence[str | int]) -> dict[str | int, int]:
        """The numbers of those of the names that there are."""
        wanted = set(names)
        with explained(self._path):
            rows = self._con.cursor().execute(
                "SELECT name, is_int, escaped, id FROM names "
                "WHERE domain = ? AND name IN (SELECT unnest(?::VARCHAR[]))",
                [domain, list({stored(name)[0] for name in names})],
            )
            found = {self._restored(domain, *row[:3]): row[3] for row in rows.fetchall()}
        return {name: number for name, number in found.items() if name in wanted}

    def _restored(self, domain: str, name: str, is_int: bool, escaped: bool) -> str | int:
        try:
            found = restored(name, is_int, escaped)
            if found is not None:
                return found
            raise ValueError("it is missing")
        except (ValueError, TypeError) as e:
            raise TraceError(
                f"{self._path}: a name of {domain} makes no sense: {e}",
                hint="the file was altered; import or ingest it again",
            ) from e

    def doubles(self, domain: str) -> dict[int, int]:
        """As `hkvtool.model.rows.Names.doubles`."""
        with explained(self._path):
            integers = "SELECT count(*) FROM names WHERE domain = ? AND is_int"
            if not self._con.cursor().execute(integers, [domain]).fetchone()[0]:
                # The join would go through all names of the trace.
                return {}
            rows = self._con.cursor().execute(
                "SELECT i.id, t.id FROM names i JOIN names t USING (domain, name) "
                "WHERE domain = ? AND i.is_int AND NOT t.is_int AND NOT t.escaped",
                [domain],
            )
            return dict(rows.fetchall())
