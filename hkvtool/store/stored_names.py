"""The names of a DuckDB trace, fetched when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import index
from typing import Any, Protocol

from hkvtool.model.rows import DOMAINS, NO_NAME, Names

PAGE, SMALL_PAGE = 1 << 14, 1 << 6
"""Names fetched at once: by who reads a trace, and by who looks around in it. Hashes run into the
millions, and most views show a few."""

_PAGES_KEPT = 16


class Rows(Protocol):
    """Where the names are, as `hkvtool.store.name_rows` reads them."""

    def fetch(self, domain: str, first: int, end: int) -> list[str | int]: ...

    def numbers(self, domain: str, names: Sequence[str | int]) -> dict[str | int, int]: ...

    def doubles(self, domain: str) -> dict[int, int]: ...


class StoredNames(Names):
    """The same to its users as `Names`; holds in memory only what was looked at."""

    def __init__(self, rows: Rows, counts: dict[str, int], page: int = PAGE) -> None:
        self.values = _Values(rows, counts, page)
        self.ids = _Numbers(self.values)
        self._rows = rows

    def find_all(self, domain: str, names: Sequence[str | int]) -> list[int]:
        if not names or self.count(domain) <= PAGE or domain in self.ids:
            return super().find_all(domain, names)
        numbers = self._rows.numbers(domain, names)
        return [numbers.get(name, NO_NAME) for name in names]

    def doubles(self, domain: str) -> dict[int, int]:
        if self.count(domain) <= PAGE:
            return super().doubles(domain)
        return self._rows.doubles(domain)


class _Values(dict[str, Any]):
    """Names by number of each domain: a list where it is short, else pages."""

    def __init__(self, rows: Rows, counts: dict[str, int], page: int) -> None:
        super().__init__()
        self._rows, self._counts, self._page = rows, counts, page

    def __missing__(self, domain: str) -> Any:
        if domain not in DOMAINS:
            raise KeyError(domain)
        count = self._counts.get(domain, 0)
        pages = _Pages(domain, self._rows, count, self._page)
        self[domain] = list(pages) if count <= PAGE else pages
        return self[domain]


class _Pages(Sequence[Any]):
    """Names by number, a page at a time."""

    def __init__(self, domain: str, rows: Rows, count: int, size: int) -> None:
        self._domain, self._rows, self._count, self._size = domain, rows, count, size
        self._pages: dict[int, list[str | int]] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        # The fold's numbers are numpy's.
        number = index(number)
        if not 0 <= number < self._count:
            raise IndexError(f"no {self._domain} has number {number}")
        page = self._pages.get(number // self._size)
        if page is None:
            if len(self._pages) >= _PAGES_KEPT:
                self._pages.pop(next(iter(self._pages)))
            first = number - number % self._size
            page = self._rows.fetch(self._domain, first, min(first + self._size, self._count))
            self._pages[number // self._size] = page
        return page[number % self._size]


class _Numbers(dict[str, dict[str | int, int]]):
    """Numbers by name, a whole domain at its first use."""

    def __init__(self, values: _Values) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, domain: str) -> dict[str | int, int]:
        self[domain] = {name: number for number, name in enumerate(self._values[domain])}
        return self[domain]


def stored(name: str | int) -> tuple[str, bool, bool]:
    """A name as the columns `name`, `is_int`, `escaped`.

    Strings with lone surrogates, legal in JSON, have no bytes in UTF-8 and are kept escaped.
    """
    if isinstance(name, int):
        return str(name), True, False
    try:
        name.encode()
    except UnicodeEncodeError:
        return json.dumps(name)[1:-1], False, True
    return name, False, False


def restored(name: str, is_int: bool, escaped: bool) -> str | int:
    """The name behind its three columns."""
    if is_int:
        return int(name)
    return str(json.loads(f'"{name}"')) if escaped else name
