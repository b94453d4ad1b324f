"""SGLang's hooks pass what every adapter has to; fold = engine is held by test_sglang_state, whose
comparison knows the tree, and evidence by the story of a whole scheduler."""

from __future__ import annotations

from collections.abc import Iterator

from engines_sglang.sglang_cache import Engine
from engines_sglang.sglang_load import Load
from hkvtool.conformance import Moment
from hkvtool.conformance import suite as kit
from hkvtool.recorder.sglang.adapter import ADAPTER


def drive() -> Iterator[Moment]:
    """Random work on a small cache; what a user of it sees is what was done and what is left."""
    load = Load(Engine("rust", slots=256, swa_slots=128), 1)
    for _ in range(80):
        kind = load.step()
        yield Moment((kind, load.engine.room(), [len(one.slots) for one in load.running]))


def test_interface() -> None:
    kit.interface(ADAPTER)


def test_harmless() -> None:
    kit.harmless(ADAPTER, drive)


def test_geometry() -> None:
    kit.geometry_told(ADAPTER, drive)


def test_quiet() -> None:
    kit.quiet(ADAPTER, drive)
