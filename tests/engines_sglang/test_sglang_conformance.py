"""SGLang's hooks pass what every adapter has to; fold = engine is held by test_sglang_state, whose
comparison knows the tree, and evidence by the story of a whole scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines_sglang.sglang_cache import Engine
from engines_sglang.sglang_load import Load
from engines_sglang.sglang_states import StateEngine, StateLoad
from engines_sglang.sglang_v4 import V4Engine, V4Load
from hkvtool.conformance import Moment
from hkvtool.conformance import suite as kit
from hkvtool.conformance.drives import Drive
from hkvtool.recorder.sglang.adapter import ADAPTER


def drive() -> Iterator[Moment]:
    """Random work on a small cache; what a user of it sees is what was done and what is left."""
    load = Load(Engine("rust", slots=256, swa_slots=128), 1)
    for _ in range(80):
        kind = load.step()
        yield Moment((kind, load.engine.room(), [len(one.slots) for one in load.running]))


def drive_states() -> Iterator[Moment]:
    """The same with recurrent layers beside."""
    load = StateLoad(StateEngine("rust", "extra_buffer", slots=256), 1)
    for _ in range(40):
        kind = load.step()
        slots = load.engine.requests.mamba_allocator.free_slots.tolist()
        yield Moment((kind, load.engine.allocator.available_size(), slots))


def drive_v4() -> Iterator[Moment]:
    """And with DeepSeek-V4's pools."""
    load = V4Load(V4Engine("rust"), 1)
    for _ in range(20):
        kind = load.step()
        rows = load.engine.cache.req_to_token_pool.free_slots
        yield Moment((kind, load.engine.allocator.swa_available_size(), list(rows)))


DRIVES = [drive, drive_states, drive_v4]


def test_interface() -> None:
    kit.interface(ADAPTER)


@pytest.mark.parametrize("drive", DRIVES)
def test_harmless(drive: Drive) -> None:
    kit.harmless(ADAPTER, drive)


@pytest.mark.parametrize("drive", DRIVES)
def test_geometry(drive: Drive) -> None:
    kit.geometry_told(ADAPTER, drive)


@pytest.mark.parametrize("drive", DRIVES)
def test_quiet(drive: Drive) -> None:
    kit.quiet(ADAPTER, drive)
