"""The names of a trace, and those that only its `state` events spell out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hkvtool.model.rows import NO_NAME, Names


class ToldNames(Names):
    """The stored names, with more behind them; all of these are known from the start, so that a
    fold opened at a keyframe numbers them as the one that made it did."""

    def __init__(self, stored: Names, more: Mapping[str, Iterable[str | int]]) -> None:
        super().__init__()
        self._stored = stored
        for domain, names in more.items():
            wanted = list(dict.fromkeys(names))
            numbers = self.ids[domain]
            for name, found in zip(wanted, stored.find_all(domain, wanted), strict=True):
                if found == NO_NAME:
                    found = stored.count(domain) + len(self.values[domain])
                    self.values[domain].append(name)
                numbers[name] = found

    def id(self, domain: str, name: str | int) -> int:
        """The number of a name that the trace holds."""
        found = self.find(domain, name)
        if found == NO_NAME:
            raise KeyError(f"no {domain} is called {name!r}")
        return found

    def find(self, domain: str, name: str | int) -> int:
        found = self.ids[domain].get(name)
        return self._stored.find(domain, name) if found is None else found

    def find_all(self, domain: str, names: Sequence[str | int]) -> list[int]:
        """`find` for many names at once, without reading all that the trace holds."""
        told = [self.ids[domain].get(name, NO_NAME) for name in names]
        held = self._stored.find_all(domain, names)
        return [other if mine == NO_NAME else mine for mine, other in zip(told, held, strict=True)]

    def name(self, domain: str, number: int) -> str | int:
        count = self._stored.count(domain)
        if number < count:
            return self._stored.name(domain, number)
        return self.values[domain][number - count]

    def count(self, domain: str) -> int:
        return self._stored.count(domain) + len(self.values[domain])
