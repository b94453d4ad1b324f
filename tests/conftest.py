"""What every room's tests share: the case corpus, the hypothesis profiles, the slow markers."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hkvtool.model.event import Event
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.shipped import shipped

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # The same of the same commit every time; the soak searches.
    derandomize=True,
)
settings.register_profile(
    "soak", parent=settings.get_profile("default"), max_examples=5000, derandomize=False
)
settings.load_profile("default")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what is to run in the background like that, and every process that a test
    # interrupts would have it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Case:
    """One public bug: the trace with the fault, the trace with the fix, what must be found."""

    id: str
    folder: Path

    @property
    def meta(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "case.json").read_text())
        return loaded

    @property
    def bad(self) -> Path:
        return self.folder / "bad.jsonl"

    @property
    def good(self) -> Path:
        return self.folder / "good.jsonl"

    @property
    def arms(self) -> tuple[Path, Path]:
        return self.bad, self.good


def _cases() -> list[Case]:
    root = Path(str(shipped("cases")))
    return [Case(f.name, f) for f in sorted(root.iterdir()) if (f / "case.json").is_file()]


def _read(path: Path) -> list[Event]:
    with path.open("rb") as stream:
        return list(read_jsonl(stream))


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    """The case corpus of the installed package, by id."""
    found = {case.id: case for case in _cases()}
    assert found, "the installed package has no cases"
    return found


@pytest.fixture(scope="session", params=_cases(), ids=lambda case: case.id)
def case(request: pytest.FixtureRequest) -> Case:
    """Each case in turn."""
    found: Case = request.param
    return found


@pytest.fixture(scope="session")
def read_events() -> Any:
    """The events of a JSONL file, as a list."""
    return _read


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests marked `soak` too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "soak" in item.keywords and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="a long run; --soak"))
        if "gpu" in item.keywords and not _cuda():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
