"""Doing something right after a module has been imported, whoever imports it and whenever.

An engine's processes import different parts of it. Importing them all in order to wrap a few
functions would cost every process, and change the order that the engine counts on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Done = Callable[[], object]


class Imports(MetaPathFinder):
    """Waits for modules. What is done must not raise: it would fail the engine's import."""

    def __init__(self) -> None:
        self._waiting: dict[str, Done] = {}

    def after(self, name: str, done: Done) -> None:
        """Call `done` now if the module is there, else when it has been imported."""
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            done()
            return
        self._waiting[name] = done
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def cancel(self) -> None:
        """Wait no longer."""
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        done = self._waiting.get(fullname)
        if done is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Then(spec.loader, lambda: self._imported(fullname))
                return spec
        return None

    def _imported(self, name: str) -> None:
        done = self._waiting.pop(name, None)
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        if done is not None:
            done()


class _Then(Loader):
    """Another loader, and something to do when it is through; leaves no trace in the module."""

    def __init__(self, loader: Any, done: Done) -> None:
        self._loader = loader
        self._done = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._done()
