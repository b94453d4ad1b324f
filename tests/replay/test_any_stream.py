"""Whatever a stream holds, a replay of it ends, with an account or with what is wrong."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.analyzers import check
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.confirming import CANNOT, CONFIRMED, NOT, confirm
from hkvtool.replay.redeciding import redecide
from hkvtool.replay.stepping import Stepper, summary
from hkvtool.replay.whole import replay
from tests.state.hostile import hostile

SEEDS = st.integers(0, 1 << 30)


def _events(seed: int) -> list[Event]:
    return [Event.of(pos, line) for pos, line in enumerate(hostile(seed, 60), 1)]


@settings(max_examples=40)
@given(SEEDS)
def test_on_real_caches(seed: int) -> None:
    events = _events(seed)
    setting = Setting(events, survey(events), runs=1)
    try:
        replay(setting)
        report = check(iter(events))
        for finding in [f for f in report.findings if not f.cause][:4]:
            assert confirm(setting, report, finding).verdict in (CONFIRMED, NOT, CANNOT)
    except HkvError as e:
        assert e.what


@settings(max_examples=40)
@given(SEEDS)
def test_as_state(seed: int) -> None:
    events = _events(seed)
    stepper = Stepper()
    for event in events:
        stepper.step(event)
    assert summary(stepper.fold)["pools"] is not None
    assert redecide(events, {"recovering_blocks": 2}).decisions >= 0
