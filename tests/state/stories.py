"""A fold driven line by line, and what its blocks hold then."""

from __future__ import annotations

from typing import Any

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold, Problem
from hkvtool.state.view import block_state
from tests.state.fold_facts import free_order, owned

UNIT = 4


class Story:
    """One pool `gpu` of eight blocks of four tokens, the first reserved; group `kv` in it."""

    def __init__(self, form: str = "compressed", **keys: Any) -> None:
        self.fold = Fold()
        self.pos = 0
        self.say("pool", pool="gpu", medium="gpu", blocks=8, reserved=[0])
        self.declare("kv", form, **keys)

    def declare(self, group: str, form: str = "compressed", **keys: Any) -> Group:
        self.say(
            "group", **{"group": group, "form": form, "pool": "gpu", "block_tokens": UNIT, **keys}
        )
        return self.fold.declared.groups[group]

    def say(self, ev: str, **keys: Any) -> Story:
        """Fold an event that is possible."""
        problem = self.refuse(ev, **keys)
        assert problem is None, problem
        return self

    def refuse(self, ev: str, **keys: Any) -> Problem | None:
        """Fold an event; why it is refused."""
        self.pos += 1
        return self.fold.apply(Event.of(self.pos, {"ev": ev, **keys}))

    def alloc(self, *blocks: int, req: str = "a", group: str = "kv", **keys: Any) -> Story:
        return self.say("alloc", group=group, blocks=list(blocks), req=req, **keys)

    def write(
        self, first: int, end: int, *blocks: int, group: str = "kv", req: str = "a", **keys: Any
    ) -> Story:
        return self.say(
            "write", group=group, blocks=list(blocks), tokens=[first, end], req=req, **keys
        )

    def publish(self, blocks: dict[int, str], group: str = "kv", **keys: Any) -> Story:
        return self.say(
            "publish", group=group, blocks=list(blocks), hashes=list(blocks.values()), **keys
        )

    # --- looking ---------------------------------------------------------------------------

    def state(self, block: int, group: str = "kv") -> CacheBlockState:
        found = block_state(self.fold, self.fold.declared.groups[group], block)
        assert found is not None, f"no event has named block {block}"
        return found

    def slot(self, block: int, group: str = "kv") -> int:
        found = self.fold.find(self.fold.declared.groups[group].pool, block)
        assert found is not None
        return found

    def of(self, block: int, field: str, group: str = "kv") -> int:
        """One integer of a block, or of the group's share of it."""
        slot = self.slot(block, group)
        at = slot
        if a.EXTENTS[field].per == "component":
            at = self.fold.component(slot, self.fold.declared.groups[group])
        return int(getattr(self.fold.st, field)[at])

    def runs(self, block: int, group: str = "kv") -> list[tuple[int, int]]:
        """Tokens that the block holds in its present generation, the latest write first."""
        if self.of(block, "cgen", group) != self.of(block, "gen", group):
            return []
        both = [
            (self.of(block, lo, group), self.of(block, hi, group))
            for lo, hi in (("lo", "hi"), ("lo2", "hi2"))
        ]
        return [run for run in both if run[1] > run[0]]

    def free(self, pool: str = "gpu") -> list[int]:
        return free_order(self.fold, self.fold.declared.pools[pool])

    def owned(self, req: str) -> list[int]:
        """Blocks that the request allocated last, the latest first."""
        return [block for _, block in owned(self.fold, self.fold.names.find("req", req))]

    def hit(self, name: str) -> list[int]:
        """Blocks that a hash leads to, the latest published first."""
        st, number = self.fold.st, self.fold.names.find("hash", name)
        found, entry = [], st.first_of_hash[number] if number >= 0 else -1
        while entry >= 0:
            if st.e_live[entry] == 1:
                found.append(int(self.fold.block_of[st.e_slot[entry]]))
            entry = st.e_next_hash[entry]
        return found
