"""The house: which room may import which. One row a room, as in CONTRIBUTING.md."""

from __future__ import annotations

import pytest

HOUSE: dict[str, str] = {
    "model": "",
    "state": "model",
    "recorder": "model state kernels",
    "store": "model state",
    "kernels": "model",
    "engine": "model state kernels recorder",
    "importers": "model store engine",
    "analyzers": "model state store",
    "replay": "model state store kernels analyzers engine",
    "probe": "model",
    "conformance": "model state recorder store analyzers engine",
    "fleet": "model store analyzers replay",
}
BELOW_REPORT = " ".join(HOUSE)
HOUSE["report"] = BELOW_REPORT
HOUSE["tui"] = f"{BELOW_REPORT} report"
HOUSE["bench"] = f"{BELOW_REPORT} report tui"
HOUSE["cli"] = f"{BELOW_REPORT} report tui bench"


@pytest.fixture(scope="session")
def house() -> dict[str, frozenset[str]]:
    """Each room, and the rooms that it may import."""
    return {room: frozenset(may.split()) for room, may in HOUSE.items()}
