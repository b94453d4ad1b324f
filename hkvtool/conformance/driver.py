"""The engine around an allocator under test: it admits, steps and preempts, and tells the accesses.

What the kernels of a step read and write is told, and done on stamped bytes, by the reference
engine's own device and memory (`hkvtool.engine.device`, `memory`), from the block tables that the
allocator gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hkvtool.conformance.allocator import Allocator, Make, Prompt
from hkvtool.conformance.chains import Chains
from hkvtool.conformance.drives import folded
from hkvtool.engine.allocator import Emit
from hkvtool.engine.config import Config
from hkvtool.engine.declare import declare
from hkvtool.engine.device import Device
from hkvtool.engine.geometry import Preset, Table, Work
from hkvtool.engine.live import Live, Stage
from hkvtool.engine.memory import Memory, Mismatch
from hkvtool.engine.pool import BlockPool
from hkvtool.model.forms import Form
from hkvtool.state.fold import Fold

NULL = 0
"""What a kernel finds in its table where there is no block."""

_MOST_IN_FLIGHT = 2


class Driver:
    """One allocator at work; `events` is what was told."""

    def __init__(self, make: Make, preset: Preset, blocks: int) -> None:
        # Copies of partial blocks are the engine's to ask for, and it does not.
        self.preset = replace(preset, partial=False)
        self.events: list[dict[str, Any]] = []
        self.fold = Fold()
        self.running: list[Live] = []
        self.waiting: deque[Live] = deque()
        self.problems: list[str] = []
        """What is wrong that no event shows."""
        self.resumed = 0
        """Tokens that requests did not have to compute."""
        self._chains = Chains()
        self._prompts: dict[str, Prompt] = {}
        self._steps: deque[tuple[int, list[tuple[Live, int, Work]]]] = deque()
        self._number = 0
        self.blocks = blocks
        self.kernels = _Kernels(self, blocks)
        self.allocator: Allocator = make(self.preset, blocks, self.tell)
        self._declare()
        self.memory = Memory(self.preset)
        self.memory.add("gpu", blocks)
        self._device = Device(self.kernels, self.memory)  # type: ignore[arg-type]

    def _declare(self) -> None:
        """Pool and groups as the allocator lays them out, and kernels as the model has them."""
        pool = BlockPool("gpu", "gpu", self.blocks, reserved=1)
        laid = Config(self.allocator.geometry(), self.blocks)
        declare(self._but(lambda ev: ev != "kernel"), laid, [pool], "")
        model = Config(self.preset, self.blocks)
        declare(self._but(lambda ev: ev == "kernel"), model, [pool], "")

    def _but(self, told: Callable[[str], bool]) -> Emit:
        def tell(ev: str, /, **keys: Any) -> None:
            if told(ev):
                self.tell(ev, **keys)

        return tell

    def tell(self, ev: str, /, **keys: Any) -> None:
        """One event, of the allocator or of the engine. Raises AssertionError where it is none, or
        cannot have happened."""
        data = {"ev": ev, **keys}
        self.events.append(data)
        problem = folded(self.fold, len(self.events), data)
        assert not problem, problem
        if ev == "alloc":
            self.kernels.taken(str(keys["group"]), keys["blocks"])

    # --- requests ----------------------------------------------------------------------------

    def arrive(self, prompt: Prompt) -> None:
        """A request waits."""
        self._prompts[prompt.id] = prompt
        request = self._chains.request(prompt)
        self.waiting.append(Live(request, known=prompt.prompt, target=request.total))

    def admit(self) -> None:
        """The first that waits is let in, from wherever its prefix allows."""
        live = self.waiting.popleft()
        prompt = self._prompts[live.request.id]
        match = self.allocator.lookup(prompt, live.known)
        hit = dict(match.hit) or {table.name: match.at for table in self.preset.tables}
        blocks = {name: list(found) for name, found in match.blocks.items()}
        self.tell("lookup", req=prompt.id, tokens=live.known, hit=hit, blocks=blocks)
        assert 0 <= match.at < live.known, (
            f"{prompt.id} resumes at {match.at} of {live.known} tokens: one is to be computed"
        )
        self.allocator.resume(prompt, match)
        live.restart(match.at)
        live.stage = Stage.RUNNING
        self.running.append(live)
        self.tell("admit", req=prompt.id)
        if match.at:
            self.resumed += match.at
            self._tell_resume(prompt, match.at)

    def _tell_resume(self, prompt: Prompt, at: int) -> None:
        held = self.allocator.table(prompt)
        blocks: dict[str, list[int]] = {}
        for table in self.preset.tables:
            span = table.lead.span(*table.lead.needs(at))
            found = [held[table.name][i] for i in span if i in held.get(table.name, {})]
            for group in table.groups:
                blocks[group.name] = found if len(found) == len(span) else []
        route = {name: "reuse" for name, found in blocks.items() if found}
        self.tell("resume", req=prompt.id, at=at, blocks=blocks, route=route)

    def give_back(self, live: Live, how: str) -> None:
        """A request ends, or is put back to begin again: `finish`, `abort` or `preempt`."""
        self.running.remove(live)
        self.tell(how, req=live.request.id)
        self.allocator.free(self._prompts[live.request.id])
        live.epoch += 1
        live.stage, live.in_flight = Stage.OVER, 0
        if how == "preempt":
            live.stage, live.known = Stage.WAITING, max(live.known, live.done)
            self.waiting.appendleft(live)

    # --- steps -------------------------------------------------------------------------------

    def step(self, budget: int, stride: int) -> None:
        """One step of all that run, each with up to `budget` tokens of prompt or `stride` more.
        Who finds no room puts back who was let in last."""
        while len(self._steps) >= _MOST_IN_FLIGHT:
            self.retire()
        works: list[tuple[Live, Work]] = []
        for live in list(self.running):
            work = live.next_work(self.preset, max(budget, self.preset.grain), stride)
            if work is None or live.stage is not Stage.RUNNING:
                continue
            if self._room(live, work, [w for w, _ in works]):
                live.ahead = work.end
                live.in_flight += 1
                works.append((live, work))
        works = [(live, work) for live, work in works if live.stage is Stage.RUNNING]
        if works:
            self._dispatch(works)

    def _room(self, live: Live, work: Work, planned: list[Live]) -> bool:
        prompt = self._prompts[live.request.id]
        while not self.allocator.allocate(prompt, self._ranges(work)):
            victim = self.running[-1]
            if victim in planned or (victim is live and len(self.running) == 1):
                # Alone it will have room once what is in flight has ended, or never.
                self.give_back(live, "preempt")
                return False
            self.give_back(victim, "preempt")
            if victim is live:
                return False
        return True

    def _ranges(self, work: Work) -> dict[str, tuple[int, int]]:
        return {table.name: table.lead.writes(work) for table in self.preset.tables}

    def _dispatch(self, works: list[tuple[Live, Work]]) -> None:
        self._number += 1
        self.tell("dispatch", step=self._number, reqs=[live.request.id for live, _ in works])
        self.kernels.reformed = dict.fromkeys(self.allocator.to_clear(), "")
        self._device.prepare(self._number, [])
        lead = self.preset.tables[0].name
        self.tell("write", step=self._number, group=lead, blocks=[NULL], tokens=[0, 1], pad=True)
        for live, work in works:
            self.kernels.look(self._prompts[live.request.id])
            self._device.run(self._number, live.request, work)
        self._steps.append((self._number, [(live, live.epoch, work) for live, work in works]))

    def retire(self) -> None:
        """The oldest step is known to be done."""
        if not self._steps:
            return
        number, works = self._steps.popleft()
        self.memory.settle()
        self.tell("retire", step=number, reqs=[live.request.id for live, _, _ in works])
        for live, epoch, work in works:
            if epoch != live.epoch:
                continue
            self._complete(live, work, accepted=number % (work.draft + 1))
            if live.done >= live.target:
                self.give_back(live, "finish")

    def _complete(self, live: Live, work: Work, accepted: int) -> None:
        live.in_flight -= 1
        live.done, live.firm = work.end + accepted, work.end
        if work.draft:
            live.ahead = live.done
            if accepted < work.draft:
                self.tell("rollback", req=live.request.id, to=live.done)
        live.known = max(live.known, live.done)
        written: dict[str, tuple[int, int]] = {}
        for table in self.preset.tables:
            start, end = table.lead.writes(work)
            if work.decode and table.lead.form is not Form.RECURRENT:
                # Drafts of the last step that were accepted count from now on.
                start = min(start, work.firm)
            if min(end, work.end) > start:
                written[table.name] = (start, min(end, work.end))
        self.allocator.publish(self._prompts[live.request.id], written, live.firm)

    def end(self) -> None:
        """Everything in flight ends, and every request goes."""
        while self._steps:
            self.retire()
        for live in list(self.running):
            self.give_back(live, "abort")
        self.waiting.clear()
        if self.memory.mismatches:
            self.problems.append(f"bytes: broken\n  {_told(self.memory.mismatches[0])}")
        self._everything_can_be_taken()

    def lacks(self, req: str, table: str, index: int) -> None:
        """A step reads what its table has no block for."""
        text = f"group intersection: broken\n  {req} runs without block {index} of table {table}"
        if text not in self.problems:
            self.problems.append(text)

    def _everything_can_be_taken(self) -> None:
        """With nothing held, the whole pool can be: else requests wait for what nobody has."""
        history = next(table for table in self.preset.tables if table.history)
        tokens = (self.blocks - 1) * history.lead.block_tokens
        last = Prompt("last", tuple(range(1 << 24, (1 << 24) + tokens + 1)), tokens + 1)
        self.allocator.resume(last, self.allocator.lookup(last, len(last.tokens)))
        if not self.allocator.allocate(last, {history.name: (0, tokens)}):
            self.problems.append(
                "admission: broken\n  no request holds anything, and not all "
                f"{self.blocks - 1} blocks can be taken"
            )
        self.allocator.free(last)


def _told(wrong: Mismatch) -> str:
    due, found = wrong.expected, wrong.found
    got = (
        "bytes that nobody has written" if found["group"] == "nothing"
        else f"those of token {found['token']} of group {found['group']}, of another prefix"
    )  # fmt: skip
    return (
        f"{wrong.req} reads token {due['token']} of group {wrong.group} in block {wrong.block} and "
        f"gets {got} (step {wrong.step})"
    )


@dataclass
class _Pool:
    versions: list[list[int]]
    generation: list[int]
    table: list[str | None]


class _Kernels:
    """What the device asks of an allocator, answered from the allocator's tables."""

    def __init__(self, driver: Driver, blocks: int) -> None:
        self.preset = driver.preset
        self.emit = driver.tell
        self.table_of: dict[str, Table] = {t.name: t for t in self.preset.tables}
        self.held: dict[str, dict[str, dict[int, int]]] = {}
        self.reformed: dict[int, str] = {}
        places = range(self.preset.places)
        self.gpu = _Pool([[0] * blocks for _ in places], [0] * blocks, [None] * blocks)
        self._driver = driver

    def taken(self, group: str, blocks: list[int]) -> None:
        """Blocks begin a new generation."""
        table = next(t.name for t in self.preset.tables for g in t.groups if g.name == group)
        for block in blocks:
            self.gpu.generation[block] += 1
            self.gpu.table[block] = table
            for versions in self.gpu.versions:
                versions[block] = 0

    def look(self, prompt: Prompt) -> None:
        """Take the request's tables as the step gets them."""
        given = self._driver.allocator.table(prompt)
        self.held[prompt.id] = {
            name: _Row(given.get(name, {}), partial(self._driver.lacks, prompt.id, name))
            for name in self.table_of
        }
        for name, row in self.held[prompt.id].items():
            for block in row.values():
                self.gpu.table[block] = self.gpu.table[block] or name


class _Row(dict[int, int]):
    """A table of one request; where it has no block, a kernel meets the null block."""

    def __init__(self, blocks: Mapping[int, int], missing: Callable[[int], None]) -> None:
        super().__init__(blocks)
        self._missing = missing

    def __missing__(self, index: int) -> int:
        self._missing(index)
        return NULL
