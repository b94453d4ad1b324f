"""Attaching to the engine in this process, and saying what would be attached."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from hkvtool.recorder.attach_report import Report
from hkvtool.recorder.patches import Target, family, find
from hkvtool.recorder.tell import NumberOf, Prepare, Sink, Tell
from hkvtool.recorder.vllm.choke_points import POINTS, ChokePoint
from hkvtool.recorder.vllm.hooks import CLASSES, Hooks, log
from hkvtool.recorder.vllm.privacy import Name
from hkvtool.recorder.vllm.rounds import Rounds, Turns

TRIED = ("0.28.0", "0.31.0", "0.32.0")
"""Releases with which the tests have passed."""

NOT_SEEN = (
    "captured graphs, which rules 801 to 803 are about",
    "what connectors other than OffloadingConnector store and send; in which parts they load",
    "the V2 model runner at work: hooks rely on its source, no test has run it (it takes a GPU)",
    "tensor-parallel workers other than the first",
)
"""What no hook tells of any release, whatever attaches."""


def attach_report() -> Report:
    """What would attach, without attaching and without starting an engine: it is imported only."""
    version = _version()
    if version is None:
        return Report(None)
    found: list[str] = []
    missing: dict[str, str] = {}
    gone: set[str] = set()
    for module in _modules():
        try:
            importlib.import_module(module)
        except Exception as e:
            log.debug("%s cannot be imported: %s", module, e)
        for point, targets in _resolve(module):
            if isinstance(targets, str):
                missing[point.name] = targets
                gone.update(point.loses)
            else:
                found.append(point.name)
    left = tuple(c for c in CLASSES if c not in gone)
    return Report(version, tuple(found), missing, left, _tried(version))


def _tried(version: str) -> bool:
    return version.partition("+")[0] in TRIED


def attach(
    sink: Sink, prepare: Prepare | None = None, *, name_of: Name | None = None, note: str = "",
    turns: Turns | None = None, number_of: NumberOf | None = None,
) -> Hooks:  # fmt: skip
    """Hook the engine of this process, now and as it imports its parts; undone by `Hooks.remove`.

    Events go to `sink`, those that come often to functions that `prepare` makes
    (`Recording.emitter`). `name_of` keys hashes (`Recording.keyed`). `turns` is how often
    the ring of a flight recorder was filled; `number_of` tells engines of one recording apart
    (`Recording.engine_number`).
    """
    hooks = Hooks(Tell(sink, prepare, number_of), name_of, note)
    if turns is not None:
        hooks.rounds = Rounds(hooks, turns)
    version = _version()
    if version is not None and not _tried(version):
        log.warning("hkvtool has not been tried with vllm %s; it attaches by signature", version)
    for module in _modules():
        hooks.imports.after(module, lambda module=module: _install(hooks, module))  # type: ignore[misc]
    return hooks


def _install(hooks: Hooks, module: str) -> None:
    """Wrap what is to be wrapped of one module. Raises nothing."""
    try:
        for point, targets in _resolve(module):
            if isinstance(targets, str):
                if point.loses:
                    hooks.lost[targets] = point.loses
                continue
            for i, target in enumerate(targets):
                name = point.name if i == 0 else f"{point.name} ({target.owner.__name__})"
                hooks.install(name, target, point.make(hooks, target.function), point.loses)
    except Exception as e:
        hooks.fail(module, e)


def _modules() -> Iterable[str]:
    return dict.fromkeys(point.place.partition(":")[0] for point in POINTS)


def _resolve(module: str) -> Iterator[tuple[ChokePoint, list[Target] | str]]:
    """Each choke point of a module with the functions to wrap, or why there is none.

    One that stands in for another counts only where that other is missing, and then that other
    is no loss.
    """
    points = [point for point in POINTS if point.place.partition(":")[0] == module]
    found = {point.name: _targets(point) for point in points}
    stands_in = {p.instead_of: p for p in points if p.instead_of}
    for point in points:
        targets = found[point.name]
        if point.instead_of:
            if isinstance(found[point.instead_of], str):
                yield point, targets
            continue
        deputy = stands_in.get(point.name)
        if isinstance(targets, str) and deputy is not None:
            if not isinstance(found[deputy.name], str):
                yield point._replace(loses=()), targets
                continue
        yield point, targets


def _targets(point: ChokePoint) -> list[Target] | str:
    module, _, name = point.place.partition(":")
    owner: Any = getattr(sys.modules.get(module), name, None)
    if owner is None:
        return f"there is no {point.place}"
    owners = [owner]
    if point.subclasses:
        owners = [c for c in dict.fromkeys(family(owner)) if _concrete(c, point.function)]
    targets: list[Target] = []
    for one in owners:
        target = find(one, point.function, point.parameters)
        if isinstance(target, str):
            return target
        targets.append(target)
    return targets or f"nothing defines {point.function}"


def _concrete(owner: type, name: str) -> bool:
    """Whether a class defines the function itself, and not only that there must be one."""
    found = vars(owner).get(name)
    return found is not None and not getattr(found, "__isabstractmethod__", False)


def _version() -> str | None:
    module = sys.modules.get("vllm")
    if module is None:
        try:
            module = importlib.import_module("vllm")
        except ImportError:
            return None
    return str(getattr(module, "__version__", "unknown"))
