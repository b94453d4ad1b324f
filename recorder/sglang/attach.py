"""Attaching to the engine in this process, and saying what would be attached."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.recorder.attach_report import Report, report_of
from hkvtool.recorder.choke_point import ChokePoint
from hkvtool.recorder.patches import Target, find
from hkvtool.recorder.sglang.choke_points import POINTS
from hkvtool.recorder.sglang.declare import NOT_SEEN
from hkvtool.recorder.sglang.hooks import EVIDENCE, Hooks, log
from hkvtool.recorder.sglang.tree_core import BACKEND, Witness, registry
from hkvtool.recorder.tell import NumberOf, Prepare, Sink, Tell

__all__ = ["NOT_SEEN", "TRIED", "attach", "attach_report"]

TRIED = ("0.5.23",)
"""Releases with which the tests have passed. The code that is hooked is private, and changes."""

_attached: list[Hooks] = []
"""Those whose witness the engine is given: a name, once registered, stays."""


def attach_report() -> Report:
    """What would attach, without attaching."""
    version = _version()
    if version is None:
        return Report(None)
    targets = {point: _target(point) for point in POINTS}
    return report_of(version, targets, EVIDENCE, tried=version in TRIED)


def attach(
    sink: Sink, prepare: Prepare | None = None, keyed: Callable[[Any], str] = str,
    number_of: NumberOf | None = None,
) -> Hooks:  # fmt: skip
    """Hook the engine of this process, for the caches it makes from here on; undone by
    `Hooks.remove`. Raises HkvError where a choke point is missing that others rely on."""
    version = _version()
    if version is None:
        raise HkvError("sglang is not installed here")
    targets = {point: _target(point) for point in POINTS}
    lost = [
        f"{p.name}: {t}" for p, t in targets.items() if isinstance(t, str) and "host" in p.loses
    ]
    if lost:
        raise HkvError(
            f"sglang {version} is not as hkvtool knows it: {lost[0]}",
            hint=f"it was tried with {', '.join(TRIED)}",
        )
    if version not in TRIED:
        log.warning("hkvtool has not been tried with sglang %s", version)
    hooks = Hooks(Tell(sink, prepare, number_of), keyed, f"sglang {version}")
    hooks.evidence = list(report_of(version, targets, EVIDENCE, tried=True).evidence)
    _offer(hooks)
    for point, target in targets.items():
        if isinstance(target, Target):
            hooks.install(point.name, target, point.wrapper(hooks, target.function), point.loses)
    return hooks


def _offer(hooks: Hooks) -> None:
    """Have the engine know our tree core, which stands in front of the one it would take."""
    _attached[:] = [hooks]
    if registry().get_tree_core_factory(BACKEND) is None:
        registry().register_tree_core_backend(BACKEND, _make)


def _make(params: Any, components: Any) -> Any:
    hooks = _attached[0]
    return Witness(registry().create_tree_core(hooks.chosen, params, components), hooks)


def _target(point: ChokePoint) -> Target | str:
    module, _, name = point.place.partition(":")
    try:
        owner = getattr(importlib.import_module(module), name)
    except Exception as e:
        return f"{point.place}: {type(e).__name__}: {e}"
    return find(owner, point.function, point.parameters)


def _version() -> str | None:
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None
