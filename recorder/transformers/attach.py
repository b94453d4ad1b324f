"""Attaching to the engine in this process, and saying what would be attached."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.recorder.attach_report import Report, report_of
from hkvtool.recorder.choke_point import ChokePoint
from hkvtool.recorder.patches import Target, find
from hkvtool.recorder.tell import Prepare, Sink, Tell
from hkvtool.recorder.transformers.choke_points import POINTS
from hkvtool.recorder.transformers.declare import declare, tell_state
from hkvtool.recorder.transformers.hooks import EVIDENCE, Hooks, log

TRIED = ("5.19.0", "5.24.0")
"""Releases with which the tests have passed. The code that is hooked is private, and changes."""


def attach_report() -> Report:
    """What would attach, without attaching."""
    version = _version()
    if version is None:
        return Report(None)
    targets = {point: _target(point) for point in POINTS}
    return report_of(version, targets, EVIDENCE, tried=version in TRIED)


def attach(
    sink: Sink, prepare: Prepare | None = None, keyed: Callable[[Any], str] = str
) -> Hooks:  # fmt: skip
    """Hook the engine of this process; undone by `Hooks.remove`. Raises HkvError where a choke
    point is missing: half of what this engine does would mislead."""
    version = _version()
    if version is None:
        raise HkvError("transformers is not installed here")
    targets = {point: _target(point) for point in POINTS}
    missing = [f"{p.name}: {t}" for p, t in targets.items() if isinstance(t, str)]
    if missing:
        raise HkvError(
            f"transformers {version} is not as hkvtool knows it: {missing[0]}",
            hint=f"it was tried with {', '.join(TRIED)}",
        )
    if version not in TRIED:
        log.warning("hkvtool has not been tried with transformers %s", version)
    hooks = Hooks(Tell(sink, prepare), keyed, f"transformers {version}")
    for point, target in targets.items():
        assert isinstance(target, Target)
        hooks.install(point.name, target, point.wrapper(hooks, target.function), point.loses)
    _adopt_running(hooks)
    return hooks


def _adopt_running(hooks: Hooks) -> None:
    """Caches that are there already begin with what they hold."""
    module = importlib.import_module("transformers.generation.continuous_batching.cache")
    for found in gc.get_objects():
        if type(found) is module.PagedAttentionCache and hasattr(found, "use_prefix_sharing"):
            tell_state(hooks, declare(hooks, found))


def _target(point: ChokePoint) -> Target | str:
    module, _, name = point.place.partition(":")
    try:
        owner = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        return f"{point.place}: {e}"
    return find(owner, point.function, point.parameters)


def _version() -> str | None:
    try:
        return str(importlib.import_module("transformers").__version__)
    except ImportError:
        return None
