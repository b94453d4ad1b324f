"""Real engines on one folder, each a process of its own: what one loads is held against what the
other stored. `tests/fleet/test_real_pair.py` has what the command makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from engines.sharing import FIRST, LONGER, SECOND, THIRD, Folder, story, tier_story
from hkvtool.analyzers import check
from hkvtool.analyzers.across import Across, across
from hkvtool.analyzers.exchanges import BELOW, DIRECT, exchanges
from hkvtool.model.event import Event
from hkvtool.model.recording import read_recording
from hkvtool.store.derive_reads import derive_reads


class Told:
    """A recording in memory, as far as what it exchanged is asked for."""

    def __init__(self, recording: Path) -> None:
        self.control = list(derive_reads(read_recording(recording)))
        assert not [e for e in self.control if e.problem]

    def events(self, kinds: Any) -> Iterator[Event]:
        return (e for e in self.control if e.ev in kinds)


def held(one: Folder, *names: str) -> Across:
    """What comes of these engines. By itself none of them shows any fault."""
    told = {name: Told(one.recording(name)) for name in names}
    for name, trace in told.items():
        assert not [f for f in check(trace.control).findings if f.severity.value == "error"], name
    shared = frozenset({DIRECT, BELOW + "offload"})
    return across({name: exchanges(trace, shared) for name, trace in told.items()})  # type: ignore[arg-type]


def codes(found: Across) -> list[str]:
    return [one.finding.code for one in found.found if not one.finding.cause]


def test_a_file_in_anothers_place_is_found_by_its_bytes_and_nothing_else_is(
    tmp_path: Path,
) -> None:
    one = Folder(tmp_path)
    assert one.run("store", [FIRST, SECOND, THIRD]) == [0, 0, 0]
    one.put(FIRST, THIRD)
    assert one.run("exchanged", [SECOND, FIRST, LONGER]) == [96, 96, 96]
    found = held(one, "store", "exchanged")
    assert codes(found) == ["HKV906"]
    assert (found.counts["right"], found.counts["wrong"]) == (3, 3)
    assert found.compared == {"weights": 6, "layout": 6, "fingerprint": 6}
    assert "those of other content, which store exported" in found.found[0].finding.message


@pytest.mark.soak
def test_the_whole_story(tmp_path: Path) -> None:
    one = story(tmp_path)
    right = held(one, "store", "load")
    assert (codes(right), right.counts["right"]) == ([], right.counts["loads"])
    assert codes(held(one, "store", "other-weights")) == ["HKV105"]
    salted = held(one, "store", "other-salt")
    assert (codes(salted), salted.elsewhere) == ([], {("other-salt", "store"): 3})
    gone = held(one, "store", "gone")
    assert (gone.counts["failed"], gone.counts["loads"]) == (3, 0)
    onward = held(one, "store", "exchanged", "onward")
    assert codes(onward) == ["HKV906", "HKV906"]
    assert onward.counts["right"] == 4


@pytest.mark.soak
def test_files_below_tiers(tmp_path: Path) -> None:
    one = tier_story(tmp_path)
    right = held(one, "store", "load")
    assert (codes(right), right.counts["right"]) == ([], 7)
    assert set(codes(held(one, "store", "other-weights"))) == {"HKV105"}
    assert codes(held(one, "store", "exchanged")) == ["HKV906", "HKV906"]
