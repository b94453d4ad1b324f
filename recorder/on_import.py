"""Doing something once a module has been imported, be it now or later."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from hkvtool.recorder.session import say


def when_imported(name: str, call: Callable[[], object]) -> None:
    """Call once the module is there: at once where it is, else behind its import, into which
    nothing that `call` raises comes."""
    if name in sys.modules:
        _called(name, call)
    elif not any(isinstance(f, _Watch) and f.name == name for f in sys.meta_path):
        sys.meta_path.insert(0, _Watch(name, call))


class _Watch(importlib.abc.MetaPathFinder):
    """Finds nothing itself; sees one module being looked for, and goes away."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self.name = name
        self._call = call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, fullname, self._call)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as the module's own loader does, and calls behind it."""

    def __init__(self, loader: importlib.abc.Loader, name: str, call: Callable[[], object]) -> None:
        self._loader, self._name, self._call = loader, name, call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            # Whoever asks the module later meets its own loader.
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _called(self._name, self._call)


def _called(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as e:
        say(f"cannot attach to {name}: {type(e).__name__}: {e}")
