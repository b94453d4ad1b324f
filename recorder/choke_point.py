"""One function of an engine that is wrapped, with what is noted before it and told after it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.patches import Target, find

Before = Callable[..., Any]
"""Called with the hooks and the engine's arguments; returns what `After` is to know."""

After = Callable[..., None]
"""Called with the hooks, what `Before` returned, the engine's result, and its arguments."""


class ChokePoint(NamedTuple):
    """One function to wrap: `function` of `place`, ``module:Class``. `parameters` are those that
    the hook relies on, `loses` is the evidence that goes with it."""

    name: str
    place: str
    function: str
    parameters: tuple[str, ...]
    before: Before
    after: After
    loses: tuple[str, ...]

    def target(self) -> Target | str:
        """The function, or why there is none to wrap. The engine's module is imported."""
        module, _, name = self.place.partition(":")
        try:
            owner = importlib.import_module(module)
            owner = getattr(owner, name) if name else owner
        except Exception as e:
            return f"{self.place}: {type(e).__name__}: {e}"
        return find(owner, self.function, self.parameters)

    def wrapper(self, hooks: Attachment, original: Any) -> Callable[..., Any]:
        """The engine's function with the hook around it. Nothing of ours comes out of it, but
        what a guard raises."""
        name, before, after = self.name, self.before, self.after

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            try:
                seen = before(hooks, *args, **kwargs)
            except Exception as e:
                hooks.fail(name, e)
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
            try:
                after(hooks, seen, result, *args, **kwargs)
            except Exception as e:
                hooks.fail(name, e)
            return result

        return wrapped


def nothing(hooks: Attachment, *args: Any, **kwargs: Any) -> None:
    """There is nothing to note before."""
