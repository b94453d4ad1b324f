"""The reference allocator holds every property, and each bug put into it breaks the one it should.

The bugs are those of `hkvtool/engine/faults_*.py` that are an allocator's own, in its own methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from engine.tiny import conversations
from hypothesis import HealthCheck, Phase, settings

from hkvtool.conformance import allocator_test, judge
from hkvtool.conformance.allocator import Match, Prompt, Ranges
from hkvtool.conformance.machine import SETTINGS
from hkvtool.conformance.reference import Reference
from hkvtool.conformance.small import COMPRESSING, PLAIN, SMALL
from hkvtool.engine.allocator import Emit
from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import fault
from hkvtool.engine.geometry import Preset
from hkvtool.engine.lookup import trusting

TestReference = allocator_test(Reference, how=settings(SETTINGS, max_examples=12))

TestReferenceForLong = pytest.mark.soak(
    allocator_test(Reference, how=settings(SETTINGS, max_examples=300, stateful_step_count=40))
)

FIND = settings(
    SETTINGS,
    max_examples=500,
    stateful_step_count=20,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
"""What breaks is not shrunk here: that it does is the question."""


class Trusting(Reference):
    """Takes a hash of the history for the whole state."""

    def lookup(self, prompt: Prompt, known: int) -> Match:
        request = self.request(prompt)
        hit = trusting(self.inner.preset, request, known, self.inner.pools, known - 1)
        self._hits[prompt.id] = hit
        return Match(hit.at, {n: [b for _, _, b in s] for n, s in hit.sources.items()}, hit.own)


class Fractured(Reference):
    """One block in the middle of a match is that of another sequence."""

    def lookup(self, prompt: Prompt, known: int) -> Match:
        match = super().lookup(prompt, known)
        name = self.inner.preset.tables[-1].name if len(self.inner.preset.tables) == 1 else "full"
        found = self._hits[prompt.id].sources.get(name, [])
        if len(found) > 1:
            pool = self.inner.gpu
            index, tier, right = found[1]
            for block in pool.hashes[name].values():
                if pool.start[block] == pool.start[right] and block != right:
                    found[1] = (index, tier, block)
                    break
        return replace(match, blocks={**match.blocks, name: [b for _, _, b in found]})


class Early(Reference):
    """Takes and publishes the whole prompt at once, long before the steps have written it."""

    def allocate(self, prompt: Prompt, ranges: Ranges) -> bool:
        ((name, _),) = ranges.items()
        whole = (0, prompt.prompt)
        if prompt.id in self.inner.held and super().allocate(prompt, {name: whole}):
            self.inner.written(prompt.id, name, *whole)
            self.inner.publish(self.request(prompt), prompt.prompt)
        return super().allocate(prompt, ranges)


class Stale(Reference):
    """A block is taken for another request, and the hash that led to it stays."""

    def __init__(self, preset: Preset, blocks: int, tell: Emit) -> None:
        super().__init__(preset, blocks, tell)
        self.inner.gpu.forget = lambda block: None  # type: ignore[method-assign]
        self.inner.evicted = lambda evicted, suffix="": None  # type: ignore[method-assign]


class Loose(Reference):
    """A hit takes no reference on its first block."""

    def resume(self, prompt: Prompt, match: Match) -> None:
        pool, tell = self.inner.gpu, self.inner.emit
        loose = [b for found in match.blocks.values() for b in found][:1]
        touch = pool.touch
        pool.touch = lambda blocks: touch(b for b in blocks if b not in loose)  # type: ignore[method-assign]

        def quiet(ev: str, /, **keys: Any) -> None:
            if ev == "touch":
                keys["blocks"] = [b for b in keys["blocks"] if b not in loose]
            if keys.get("blocks", True):
                tell(ev, **keys)

        self.inner.emit = quiet
        super().resume(prompt, match)
        pool.touch, self.inner.emit = touch, tell  # type: ignore[method-assign]
        self.loose = {prompt.id: loose}

    def free(self, prompt: Prompt) -> None:
        # It never had that reference, and does not give it back.
        for blocks in self.inner.held.get(prompt.id, {}).values():
            for index in [i for i, b in blocks.items() if self.inner.gpu.refs[b] < 1]:
                del blocks[index]
        super().free(prompt)


class Twice(Reference):
    """A request's last block is given back twice."""

    def free(self, prompt: Prompt) -> None:
        held = {name: list(b.values()) for name, b in self.inner.held.get(prompt.id, {}).items()}
        super().free(prompt)
        for name, blocks in held.items():
            loose = [b for b in blocks if self.inner.gpu.refs[b] == 0]
            if loose:
                self.inner.emit("free", req=prompt.id, group=name, blocks=loose[-1:])
                return


class Leaking(Reference):
    """A request's first block is never given back."""

    def free(self, prompt: Prompt) -> None:
        for blocks in self.inner.held.get(prompt.id, {}).values():
            if blocks:
                del blocks[next(iter(blocks))]
                break
        super().free(prompt)


class Shrinking(Reference):
    """Keeps one block less with every request that ends."""

    lost = 0

    def allocate(self, prompt: Prompt, ranges: Ranges) -> bool:
        needs = sum(map(len, self.inner.missing(prompt.id, ranges).values()))
        return needs <= self.inner.gpu.available - self.lost and super().allocate(prompt, ranges)

    def free(self, prompt: Prompt) -> None:
        super().free(prompt)
        self.lost += 1


class Uncleared(Reference):
    """Does not say which blocks come in another form."""

    def to_clear(self) -> Sequence[int]:
        super().to_clear()
        return ()


class Crossed(Reference):
    """Once, brings blocks of one table for another."""

    def lookup(self, prompt: Prompt, known: int) -> Match:
        match = super().lookup(prompt, known)
        sources = self._hits[prompt.id].sources
        full, swa = sources.get("full"), sources.get("swa")
        if full and swa:
            sources["swa"] = [(i, t, full[i][2]) for i, t, _ in swa]
        return match


class Null(Reference):
    """Hands out block 0, where padding is written to."""

    def __init__(self, preset: Preset, blocks: int, tell: Emit) -> None:
        super().__init__(preset, blocks, tell)
        self.inner.gpu.free[0] = None
        self.inner.gpu.free.move_to_end(0, last=False)


class Sliding(Reference):
    """Lets go of the first block of a window while it is still needed."""

    def table(self, prompt: Prompt) -> Mapping[str, Mapping[int, int]]:
        held = super().table(prompt)
        window = dict(held["swa"])
        if len(window) > 2:
            del window[min(window)]
        return {**held, "swa": window}


class Lengths(Reference):
    """A hash that says how long a prefix is, and not of which tokens."""

    def __init__(self, preset: Preset, blocks: int, tell: Emit) -> None:
        super().__init__(preset, blocks, tell)
        request = self.request
        self.request = lambda p: request(replace(p, tokens=tuple(range(len(p.tokens)))))


def laid_out(**changes: Any) -> type[Reference]:
    """One that lays its first group out otherwise than the model's kernels expect."""

    class Laid(Reference):
        def geometry(self) -> Preset:
            preset = super().geometry()
            first, *others = preset.groups
            return replace(preset, groups=(replace(first, **changes), *others))

    return Laid


def unaligned(preset: Preset, blocks: int, tell: Emit) -> Reference:
    class Unaligned(Reference):
        def geometry(self) -> Preset:
            return replace(super().geometry(), stride=200, align=256)

    return Unaligned(preset, blocks, tell)


BUGS: Mapping[str, tuple[Callable[..., Reference], str, str, str]] = {
    "fractured prefix": (Fractured, "plain", "bytes", "of another prefix"),
    "hash of the length": (Lengths, "plain", "bytes", "of another prefix"),
    "published before written": (Early, "plain", "whole block", "HKV103"),
    "stale generation": (Stale, "plain", "whole block", "HKV10"),
    "dtype": (laid_out(dtype="int8"), "plain", "kernel ABI", "HKV201"),
    "order": (laid_out(order="block,head,token"), "plain", "kernel ABI", "HKV202"),
    "codec": (laid_out(codec="fp8/2"), "plain", "kernel ABI", "HKV203"),
    "window missing": (Trusting, "windowed", "group intersection", "HKV303"),
    "tail missing": (Trusting, "compressing", "group intersection", "HKV302"),
    "state missing": (Trusting, "recurrent", "group intersection", "HKV306"),
    "window let go": (Sliding, "windowed", "group intersection", "runs without block"),
    "stride": (unaligned, "plain", "alignment", "HKV401"),
    "past the region": (laid_out(page_bytes=512), "plain", "alignment", "HKV402"),
    "blocks that nobody has": (Shrinking, "plain", "admission", "can be taken"),
    "another form": (Crossed, "windowed", "form routing", "HKV601"),
    "not cleared": (Uncleared, "compressing", "form routing", "HKV604"),
    "no reference": (Loose, "plain", "check and use", "HKV704"),
    "given back twice": (Twice, "plain", "check and use", "HKV704"),
    "null block": (Null, "plain", "static topology", "HKV802"),
    "leak": (Leaking, "plain", "admission", "can be taken"),
}
"""Who, on which model, which property it breaks, and by which rule."""


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_breaks_its_property(bug: str) -> None:
    make, model, name, code = BUGS[bug]
    case = allocator_test(make, {model: SMALL[model]}, how=FIND)
    with pytest.raises(AssertionError) as error:
        getattr(case(f"test_{model}"), f"test_{model}")()
    said = str(error.value)
    assert f"{name}: broken" in said and code in said, said[:2000]


def test_a_failure_is_shrunk_to_few_calls() -> None:
    case = allocator_test(Twice, {"plain": SMALL["plain"]})
    with pytest.raises(AssertionError) as error:
        case("test_plain").test_plain()  # type: ignore[attr-defined]
    notes = "\n".join(getattr(error.value, "__notes__", ()))
    assert notes.count("state.") <= 6, notes


def events_of(code: str) -> list[dict[str, Any]]:
    """A run of the reference engine with one of its faults."""
    events: list[dict[str, Any]] = []
    model, blocks = _SUITED.get(code, (COMPRESSING, 500))
    config = Config(
        model, blocks, cpu_blocks=300, disk_blocks=300, seed=0, budget=64, stride=4,
        abort_rate=0.0, token_ns=50_000,
    )  # fmt: skip
    with Engine(config, events.append) as engine:
        fault(code, 0).install(engine)
        engine.run(conversations(0, 50, gap=1_000_000 if code == "HKV504" else 4_000_000))
    return events


_SUITED = {"HKV504": (PLAIN, 40), "HKV701": (PLAIN, 500), "HKV902": (COMPRESSING, 160)}
"""Where the fault has a place, as in tests/engine/test_faults.py."""


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("HKV504", "admission"), ("HKV701", "check and use"),
        *(
            pytest.param(*fault, marks=pytest.mark.soak)
            for fault in (
                ("HKV101", "whole block"), ("HKV303", "group intersection"),
                ("HKV602", "form routing"),
                ("HKV801", "static topology"), ("HKV902", "evidence"),
            )
        ),
    ],
)  # fmt: skip
def test_a_fault_of_the_reference_engine_breaks_one_property(code: str, name: str) -> None:
    verdicts = judge(events_of(code))
    assert [v.name for v in verdicts.values() if not v.holds] == [name]
    assert {f.code for f in verdicts[name].broken} == {code}
