"""State depth: the fold, event by event, and the blocks that each event changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.event import Event
from hkvtool.state.fold import Fold
from hkvtool.state.serving import foreign
from hkvtool.state.view import block_state

Key = tuple[str, int, str]
"""Pool, block, group."""

_UNTOLD = frozenset({"last_touch", "block_id", "pool", "group"})
"""Fields that name a state, or change with every event that names the block."""


@dataclass(frozen=True)
class Change:
    """One block as one group sees it, before and after an event."""

    pool: str
    block: int
    group: str
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def fields(self) -> dict[str, tuple[Any, Any]]:
        """What changed: field, before, after."""
        return {
            name: (self.before.get(name), value) for name, value in self.after.items()
            if self.before.get(name) != value and name not in _UNTOLD
        }  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        return {
            "pool": self.pool, "block": self.block, "group": self.group,
            "changed": {name: list(pair) for name, pair in self.fields.items()},
        }  # fmt: skip


class Stepper:
    """Folds a trace and remembers each block's last state."""

    def __init__(self) -> None:
        self.fold = Fold()
        self._known: dict[Key, dict[str, Any]] = {}
        self._slots: dict[str, set[tuple[str, int]]] = {}

    def step(self, event: Event) -> tuple[str | None, list[Change]]:
        """Fold one event; says why where it is impossible as written, and what changed."""
        refused = self.fold.apply(event)
        if refused is not None:
            return refused.text, []
        changes = []
        for pool, block in self._named(event):
            for state in self._states(pool, block):
                after = _plain(state)
                key = (pool, block, state.group)
                change = Change(pool, block, state.group, self._known.get(key, {}), after)
                self._known[key] = after
                if change.fields:
                    changes.append(change)
        return None, changes

    def _named(self, event: Event) -> Iterator[tuple[str, int]]:
        """Blocks whose state the event can change: those it touched, and its request's."""
        fold = self.fold
        touch = fold.st.touch
        for pool in fold.declared.pools.values():
            wanted = self._candidates(event, pool.name)
            for block, slot in fold.slots_of(pool).items():
                if touch[slot] == event.pos or block in wanted:
                    yield pool.name, block

    def _candidates(self, event: Event, pool: str) -> set[int]:
        """Blocks that an event changes without naming them."""
        if event.ev in ("unpublish", "reset", "weights", "rollback"):
            return {block for name, block, _ in self._known if name == pool}
        return set()

    def _states(self, pool: str, block: int) -> Iterator[CacheBlockState]:
        fold = self.fold
        for group in fold.declared.groups.values():
            if group.pool.name != pool:
                continue
            slot = fold.find(group.pool, block)
            if slot is None or foreign(fold, group, slot):
                continue
            state = block_state(fold, group, block)
            if state is not None:
                yield state


def _plain(state: CacheBlockState) -> dict[str, Any]:
    facts = asdict(state)
    facts["form"] = str(state.form.value)
    facts["tokens"] = None if state.tokens is None else list(state.tokens)
    return facts


def summary(fold: Fold) -> dict[str, Any]:
    """What the fold says of each pool and group, in numbers."""
    st = fold.st
    pools = []
    for pool in fold.declared.pools.values():
        slots = fold.slots_of(pool).values()
        pools.append({
            "pool": pool.name, "medium": pool.medium, "blocks": pool.blocks, "named": len(slots),
            "referenced": sum(st.refs[s] > 0 for s in slots),
            "published": sum(st.live[s] > 0 for s in slots),
            "recovering": sum(st.loads[s] > 0 for s in slots),
        })  # fmt: skip
    groups = []
    for group in fold.declared.groups.values():
        states = [
            state for block, slot in fold.slots_of(group.pool).items()
            if not foreign(fold, group, slot)
            and (state := block_state(fold, group, block)) is not None and state.written
        ]  # fmt: skip
        why: dict[str, int] = {}
        for state in states:
            if not state.recoverable:
                code = state.why_not or "nothing written"
                why[code] = why.get(code, 0) + 1
        groups.append({
            "group": group.name, "form": group.form, "pool": group.pool.name,
            "filled": len(states), "recoverable": sum(s.recoverable for s in states),
            "why_not": why,
        })  # fmt: skip
    return {"pools": pools, "groups": groups}
