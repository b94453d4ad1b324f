"""A served vLLM, probed from outside: silent while it is right, found while it is broken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines.probing import SEED, SEEDS, assert_found, assert_silent, probed
from engines.served import Served, served

REQUESTS = {
    "stale window": 150, "swapped block": 150, "wrong salt": 150, "missing state": 150,
    "late load": 500,
}  # fmt: skip
"""Within so many requests each fault is confirmed, those that measure noise and repeat included.
To push a prompt out of the cache takes some."""

FAULTS = [
    ("stale window", "return"), ("swapped block", "return"), ("wrong salt", "salt"),
    ("late load", "reload"),
]  # fmt: skip
"""What is broken, and a pattern that meets it in every comparison."""


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Windows and full attention, with a tier below."""
    with served(tmp_path_factory.mktemp("windows"), "gemma3", offload=True) as server:
        yield server


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Recurrent states and full attention."""
    with served(tmp_path_factory.mktemp("states"), "qwen3next") as server:
        yield server


def test_a_right_server_is_silent(windows: Served) -> None:
    report = probed(windows, comparisons=10, requests=400)
    assert_silent(report, 10)
    assert report["server"]["block_tokens"] == 32 and report["server"]["salts"] == "separate"
    assert report["sensitivity"]["told_apart"] == 4


@pytest.mark.soak
def test_a_right_server_is_silent_a_thousand_times(windows: Served) -> None:
    assert_silent(probed(windows, comparisons=1000, requests=20_000), 1000)


@pytest.mark.parametrize(("fault", "pattern"), FAULTS)
def test_a_broken_server_is_found(windows: Served, fault: str, pattern: str) -> None:
    windows.breaks(fault)
    try:
        report = probed(windows, pattern, comparisons=4, requests=REQUESTS[fault])
    finally:
        windows.breaks("")
    assert_found(report, pattern, REQUESTS[fault])


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "pattern"), FAULTS)
def test_a_broken_server_is_found_whatever_is_asked(
    windows: Served, fault: str, pattern: str
) -> None:
    windows.breaks(fault)
    try:
        for seed in SEEDS:
            report = probed(windows, pattern, comparisons=4, requests=REQUESTS[fault], seed=seed)
            assert_found(report, pattern, REQUESTS[fault])
    finally:
        windows.breaks("")


@pytest.mark.soak
def test_a_missing_state_is_found(states: Served) -> None:
    states.breaks("missing state")
    for seed in [SEED, *SEEDS]:
        report = probed(
            states, "warm", comparisons=4, length=300, requests=REQUESTS["missing state"], seed=seed
        )
        assert_found(report, "warm", REQUESTS["missing state"])
