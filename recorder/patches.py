"""Wrapping functions of an engine so that taking the wrapper away leaves nothing behind.

A wrapper calls the engine's function first and hands on what it returns or raises; what goes wrong
in our part of it takes the wrapper off and never reaches the engine.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Around = Callable[..., Any]
"""Takes the engine's function, then its arguments; must call it once and return its result."""

_MARK = "__hkvtool_original__"

_UNBOUND = (classmethod, staticmethod)


@dataclass(frozen=True)
class Target:
    """One function of an engine, found by name, and the parameters it is known by."""

    owner: Any
    name: str
    original: Any
    own: bool
    """Defined in that class itself, not inherited."""

    @property
    def function(self) -> Any:
        return self.original.__func__ if isinstance(self.original, _UNBOUND) else self.original


def find(owner: Any, name: str, parameters: Sequence[str] = ()) -> Target | str:
    """The function of that name that takes these parameters, or why it cannot be wrapped."""
    original = inspect.getattr_static(owner, name, None)
    if original is None:
        return f"{_named(owner)} has no {name}"
    function = original.__func__ if isinstance(original, _UNBOUND) else original
    if not callable(function):
        return f"{_named(owner)}.{name} is no function"
    plain = getattr(function, _MARK, function)
    try:
        known = inspect.signature(plain).parameters
    except (TypeError, ValueError):
        return f"{_named(owner)}.{name} hides its parameters"
    lacks = [p for p in parameters if p not in known]
    if lacks:
        return f"{_named(owner)}.{name} takes no {', '.join(lacks)}"
    return Target(owner, name, original, name in vars(owner))


def wrap(target: Target, wrapper: Callable[..., Any]) -> None:
    """Put `wrapper`, which calls ``target.function`` itself, in its place."""
    functools.update_wrapper(wrapper, target.function)
    setattr(wrapper, _MARK, target.function)
    kind = next((kind for kind in _UNBOUND if isinstance(target.original, kind)), None)
    put: Any = wrapper if kind is None else kind(wrapper)
    setattr(target.owner, target.name, put)


def unwrap(target: Target) -> None:
    """Put the engine's own function back."""
    if target.own:
        setattr(target.owner, target.name, target.original)
    elif target.name in vars(target.owner):
        delattr(target.owner, target.name)


_FOLLOWED = """
def wrapper({parameters}):
    result = original({arguments})
    if result:
        then(result, {told})
    return result
"""

_PRECEDED = """
def wrapper({parameters}):
    first({told})
    return original({arguments})
"""

_ENCLOSED = """
def wrapper({parameters}):
    before = first({told})
    try:
        return original({arguments})
    finally:
        if before is not None:
            last(before, {told})
"""


def followed(original: Any, then: Callable[..., Any], *told: str) -> Callable[..., Any]:
    """A wrapper with the very parameters of `original`, which calls `then` with a result that is
    not empty and those of the parameters that are `told`. Passing parameters on as they are takes
    a third of what it does as `*args` and `**kwargs`."""
    return _written(_FOLLOWED, original, told, then=then)


def preceded(original: Any, first: Callable[..., Any], *told: str) -> Callable[..., Any]:
    """The same, with a call before the engine's."""
    return _written(_PRECEDED, original, told, first=first)


def enclosed(
    original: Any, first: Callable[..., Any], last: Callable[..., Any], *told: str
) -> Callable[..., Any]:
    """The same, with a call on both sides, the latter where the former returned something."""
    return _written(_ENCLOSED, original, told, first=first, last=last)


def _written(text: str, original: Any, told: Sequence[str], **scope: Any) -> Callable[..., Any]:
    """Made of the names of parameters that Python has accepted once, and of nothing else."""
    parameters = inspect.signature(original).parameters.values()
    arguments = []
    kinds = inspect.Parameter
    stars: dict[Any, str] = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
    for p in parameters:
        by_name = f"{p.name}=" if p.kind is kinds.KEYWORD_ONLY else ""
        arguments.append(stars.get(p.kind, by_name) + p.name)
    # What is not given has the same default; only that there is one stands in the text.
    bare = [
        p.replace(annotation=kinds.empty, default=None if _given(p) else p.default)
        for p in parameters
    ]
    scope["original"] = original
    exec(
        text.format(
            parameters=str(inspect.Signature(bare))[1:-1], arguments=", ".join(arguments),
            told=", ".join(told),
        ),
        scope,
    )  # fmt: skip
    made: Callable[..., Any] = scope["wrapper"]
    made.__defaults__, made.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    return made


def _given(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def family(owner: type[Any]) -> Iterator[type[Any]]:
    """A class and all that derive from it; some more than once."""
    yield owner
    for child in owner.__subclasses__():
        yield from family(child)


def is_wrapped(owner: Any, name: str) -> bool:
    """Whether a wrapper of ours stands there."""
    found = inspect.getattr_static(owner, name, None)
    function = found.__func__ if isinstance(found, classmethod) else found
    return hasattr(function, _MARK)


def _named(owner: Any) -> str:
    return getattr(owner, "__name__", str(owner))
