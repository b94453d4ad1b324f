"""The compiled part of the hooks tells, event by event, what the Python part tells."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, qwen_next_like, random_load
from hkvtool.recorder.native import compiled, missing
from hkvtool.recorder.vllm import pool_hooks
from hkvtool.recorder.vllm.attach import attach

pytestmark = pytest.mark.skipif(compiled is None, reason=f"not compiled: {missing}")

MODELS: dict[str, dict[str, Any]] = {
    "windows": {"groups": gemma_like},
    "recurrent": {"groups": qwen_next_like, "block": 64, "mamba": "align", "blocks": 80},
}


def told(folder: Path, model: str, overlapped: bool, seed: int) -> list[dict[str, Any]]:
    """The events of a random load under hooks that are put on for it."""
    events: list[dict[str, Any]] = []
    hooks = attach(lambda event: events.append(dict(event)), name_of=lambda value: value.hex())
    options = dict(MODELS[model])
    try:
        made = make_scheduler(
            folder, options.pop("groups")(), overlapped=overlapped, events=True, **options
        )
        drive = Drive(made.scheduler, 2 if overlapped else 1)
        for _ in random_load(drive, random.Random(seed), 250, longest=140, output=70):
            pass
        drive.drain()
        assert not hooks.failed
    finally:
        hooks.remove()
    return events


@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, overlapped: bool
) -> None:
    in_c = told(tmp_path, model, overlapped, 5)
    monkeypatch.setattr(pool_hooks, "compiled", None)
    plain = told(tmp_path, model, overlapped, 5)
    assert len(plain) > 2000
    for number, (one, other) in enumerate(zip(in_c, plain, strict=False)):
        assert one == other, number
    assert len(in_c) == len(plain)


class Stop(Exception):
    pass


@pytest.mark.parametrize("kind", ["alloc", "free", "slide", "publish"])
def test_a_sink_that_raises_takes_the_hook_off(tmp_path: Path, kind: str) -> None:
    """What goes wrong in C is told of and kept from the engine as what goes wrong in Python is."""
    armed = False

    def sink(event: Any) -> None:
        if armed and event["ev"] == kind:
            raise Stop(kind)

    hooks = attach(sink)
    try:
        made = make_scheduler(tmp_path, gemma_like())
        drive = Drive(made.scheduler)
        load = random_load(drive, random.Random(2), 200, longest=140, output=70)
        for step in load:
            armed = step > 20
        drive.drain()
        name = {"slide": "free", "publish": "publish full"}.get(kind, kind)
        assert hooks.failed[name] == f"Stop: {kind}"
    finally:
        hooks.remove()
