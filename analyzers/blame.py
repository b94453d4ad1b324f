"""Which root finding explains later ones: one root cause gives one root finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hkvtool.model.findings import Finding
from hkvtool.model.rules import Severity
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold


class Blame:
    """Remembers, for blocks of a generation and for requests' tables, what is wrong with them."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self._blocks: dict[int, tuple[int, Finding]] = {}
        self._tables: dict[tuple[str, int], Finding] = {}

    def put(self, finding: Finding, slots: Iterable[int]) -> None:
        """Later findings about these blocks follow from this one."""
        gen = self.fold.st.gen
        for slot in slots:
            if slot < 0:
                continue
            held = self._blocks.get(slot)
            if held is None or held[0] < gen[slot] or held[1].severity is not Severity.ERROR:
                self._blocks[slot] = (gen[slot], finding)

    def put_table(self, finding: Finding, request: str, group: Group) -> None:
        """Later findings about this request's table follow from this one."""
        self._tables.setdefault((request, group.table_id), finding)

    def of(
        self, slots: Iterable[int], request: str | None = None, group: Group | None = None
    ) -> Finding | None:
        """The root finding that explains faults of these blocks, or of the request's table."""
        for slot in slots:
            held = self._blocks.get(slot)
            if held is not None and held[0] == self.fold.st.gen[slot]:
                return held[1]
        if request is not None and group is not None:
            return self._tables.get((request, group.table_id))
        return None

    def carry(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Content that moves takes its fault along."""
        gen = self.fold.st.gen
        for source, target in zip(sources, targets, strict=False):
            held = self._blocks.get(source) if source >= 0 else None
            if held is not None and target >= 0 and held[0] == gen[source]:
                self._blocks[target] = (gen[target], held[1])
