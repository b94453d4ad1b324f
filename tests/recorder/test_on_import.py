"""Something is done once a module has been imported, and the import is as it would have been."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hkvtool.recorder.on_import import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "an_engine_that_comes_later"
    (tmp_path / f"{name}.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    watching = list(sys.meta_path)
    yield name
    sys.meta_path[:] = watching
    sys.modules.pop(name, None)


def test_at_once_where_it_is_there() -> None:
    called: list[str] = []
    when_imported("json", lambda: called.append("json"))
    assert called == ["json"]


def test_behind_its_import_once(module: str) -> None:
    seen: list[int] = []
    when_imported(module, lambda: seen.append(sys.modules[module].VALUE))
    when_imported(module, lambda: seen.append(2))
    assert not seen
    found = importlib.import_module(module)
    assert seen == [1]
    assert found.__spec__ is not None and found.__loader__ is found.__spec__.loader
    assert type(found.__loader__).__name__ == "SourceFileLoader"
    importlib.reload(found)
    assert seen == [1]


def test_what_it_raises_does_not_come_into_the_import(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise RuntimeError("ours")

    when_imported(module, broken)
    assert importlib.import_module(module).VALUE == 1
    assert f"cannot attach to {module}: RuntimeError: ours" in capsys.readouterr().err


def test_a_module_that_is_not_there_is_missing_as_ever() -> None:
    when_imported("no_such_engine_anywhere", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_engine_anywhere")
