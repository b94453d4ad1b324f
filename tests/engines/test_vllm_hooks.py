"""Hooks that fail, hooks that come late, hooks that go: the engine does what it did without them."""

from __future__ import annotations

import gc
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engines.engine_state import Folded, differences
from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, qwen_next_like, random_load
from hkvtool.recorder.patches import is_wrapped
from hkvtool.recorder.vllm import attach as attaching
from hkvtool.recorder.vllm.attach import attach, attach_report
from hkvtool.recorder.vllm.choke_points import POINTS
from hkvtool.recorder.vllm.late import Running, running, take_over


def outcome(folder: Path, steps: int = 90, recurrent: bool = True) -> str:
    """All that an engine does under one load, as text: its plans, step by step."""
    groups = qwen_next_like() if recurrent else gemma_like()
    options: dict[str, Any] = {"block": 64, "mamba": "align", "blocks": 80} if recurrent else {}
    made = make_scheduler(folder, groups, **options)
    drive = Drive(made.scheduler)
    told: list[Any] = []
    plan = made.scheduler.schedule

    def schedule(*args: Any, **kwargs: Any) -> Any:
        out = plan(*args, **kwargs)
        fresh = [(r.req_id, r.block_ids) for r in out.scheduled_new_reqs]
        told.append((out.num_scheduled_tokens, fresh, out.scheduled_cached_reqs.new_block_ids))
        return out

    made.scheduler.schedule = schedule
    for _ in random_load(drive, random.Random(9), steps, longest=150, output=50):
        pass
    drive.drain()
    return json.dumps(told)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return outcome(tmp_path_factory.mktemp("bare"))


def _wrapped() -> list[str]:
    found = []
    for point in POINTS:
        module, _, name = point.place.partition(":")
        owner = getattr(sys.modules.get(module), name, None)
        if owner is not None and is_wrapped(owner, point.function):
            found.append(point.name)
    return found


def test_everything_attaches_and_goes_without_a_trace() -> None:
    report = attach_report()
    assert report.missing == {} and report.tried
    assert report.evidence == ("host", "step", "layout")
    before = _wrapped()
    hooks = attach(lambda event: None)
    assert len(_wrapped()) > 25
    again = attach(lambda event: None)
    again.remove()
    hooks.remove()
    assert _wrapped() == before == []


@pytest.mark.parametrize(
    "kind", ["alloc", "free", "touch", "publish", "unpublish", "dispatch", "retire", "slide"]
)
def test_a_sink_that_raises_at_one_kind(tmp_path: Path, undisturbed: str, kind: str) -> None:
    """Whatever hook meets it is off, says so, and the engine plans what it planned."""
    events: list[dict[str, Any]] = []

    def sink(event: Any) -> None:
        if event["ev"] == kind:
            raise RuntimeError("no")
        events.append(event)

    hooks = attach(sink)
    try:
        recurrent = kind != "slide"
        expected = undisturbed if recurrent else None
        seen = outcome(tmp_path, recurrent=recurrent)
    finally:
        hooks.remove()
    if expected is not None:
        assert seen == expected
    assert len(hooks.failed) >= 1
    told = [e for e in events if e["ev"] == "evidence"]
    assert len(told) == len(hooks.failed) and "RuntimeError" in told[0]["note"]
    gone = "step" if kind in ("dispatch", "retire") else "host"
    assert gone not in told[-1]["evidence"]
    assert kind not in Counter(e["ev"] for e in events)


def test_every_hook_made_to_raise_in_turn(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for point in POINTS:
        hooks = attach(lambda event: None)
        names = [name for name in hooks._targets if name.partition(" (")[0] == point.name]
        for name in names:
            hooks.fail(name, RuntimeError("made to"))
        folder = tmp_path / point.name.replace(" ", "-")
        folder.mkdir()
        try:
            assert outcome(folder, 90) == undisturbed, point.name
            assert set(names) <= set(hooks.failed)
        finally:
            hooks.remove()


def test_beginning_in_the_middle(tmp_path: Path) -> None:
    made = make_scheduler(tmp_path, gemma_like())
    drive = Drive(made.scheduler)
    for _ in random_load(drive, random.Random(4), 150, longest=120, output=100):
        pass
    folded = Folded()
    gc.freeze()  # as an engine core does when it has started
    try:
        managers = [m for m in running().managers if m is made.scheduler.kv_cache_manager]
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    assert managers, "a frozen heap hides the engine"
    hooks = attach(folded)
    try:
        take_over(hooks, Running(managers, [], []))
        assert [e["ev"] for e in folded.events[:3]] == ["trace", "pool", "group"]
        mine = hooks.pool(made.scheduler.kv_cache_manager.block_pool).name
        state = next(e for e in folded.events if e["ev"] == "state" and e["pool"] == mine)
        assert sum(state["refs"]) > 0
        for step in random_load(drive, random.Random(5), 200, longest=120, output=100):
            found = [
                d
                for d in differences(folded, hooks, made.scheduler)
                if not d.startswith("table of")
            ]
            assert not found, (step, found[:5])
        drive.drain()
        assert not list(differences(folded, hooks, made.scheduler))
    finally:
        hooks.remove()


def test_a_missing_choke_point_narrows_the_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = [p._replace(function="not_there") if p.name == "touch" else p for p in POINTS]
    monkeypatch.setattr(attaching, "POINTS", tuple(lacking))
    report = attach_report()
    assert (
        report.missing == {"touch": "BlockPool has no not_there"} and "host" not in report.evidence
    )
    events: list[dict[str, Any]] = []
    hooks = attach(events.append)
    try:
        make_scheduler(tmp_path, gemma_like())
    finally:
        hooks.remove()
    assert events[0]["evidence"] == ["step", "layout"]
    assert "not_there" in events[0]["note"]


class _Mode:  # as the engine names its modes
    name = "FULL_AND_PIECEWISE"


def test_what_no_hook_sees_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import types

    from hkvtool.recorder import diagnosis
    from hkvtool.recorder.vllm.load_hooks import unseen

    class NixlConnector: ...

    class OffloadingConnector: ...

    class MultiConnector:
        def __init__(self, *parts: object) -> None:
            self._connectors = list(parts)

    def engine(connector: object, v2: bool = False, mode: object = None) -> object:
        compiled = types.SimpleNamespace(cudagraph_mode=mode)
        config = types.SimpleNamespace(use_v2_model_runner=v2, compilation_config=compiled)
        return types.SimpleNamespace(connector=connector, vllm_config=config)

    assert unseen(engine(None)) == unseen(engine(OffloadingConnector())) == []
    assert "NixlConnector stores and sends" in unseen(engine(NixlConnector()))[0]
    both = MultiConnector(OffloadingConnector(), NixlConnector())
    assert "NixlConnector loads, stores and sends" in unseen(engine(both))[0]
    found = " ".join(unseen(engine(None, v2=True, mode=_Mode)))
    assert "V2 model runner" in found and "FULL_AND_PIECEWISE" in found

    monkeypatch.setenv("HKV_ADAPTERS", "vllm")
    diagnosis.main()
    told = capsys.readouterr().out
    assert told.count("not seen") == 4 and "captured graphs" in told and "V2 model runner" in told
