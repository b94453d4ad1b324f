"""An adapter that is a list of an engine's functions to wrap, as most are."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from hkvtool.model.errors import HkvError
from hkvtool.recorder.attach_report import Report, report_of
from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.choke_point import ChokePoint
from hkvtool.recorder.patches import Target
from hkvtool.recorder.tell import NumberOf, Prepare, Sink, Tell

if TYPE_CHECKING:
    from hkvtool.recorder.recording import Recording


class HookSet:
    """What is the same of all that wrap functions; a subclass says which, and of what.

    Attaching is all or nothing: where a function that evidence rests on is not as it is known, the
    engine is left alone and that is said.
    """

    engine: ClassVar[str]
    distribution: ClassVar[str]
    """Whose version it is."""
    tried: ClassVar[tuple[str, ...]] = ()
    """Releases with which the adapter's tests have passed."""
    evidence: ClassVar[tuple[str, ...]]
    """What rules may rely on while every hook holds: classes of `hkv/1`."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of events told, all of which the adapter's tests come by; none where nobody says."""
    not_seen: ClassVar[tuple[str, ...]] = ()
    """What happens in the engine and is not told, for a person who reads the trace."""

    def __init__(self) -> None:
        self._attached: Attachment | None = None

    def points(self) -> Sequence[ChokePoint]:
        """The functions to wrap."""
        raise NotImplementedError

    def hooks(self, tell: Tell, keyed: Callable[[Any], str], engine: str) -> Attachment:
        """What the hooks share. `keyed` is for hashes and salts, `engine` the name and version."""
        raise NotImplementedError

    def take_over(self, hooks: Any) -> None:
        """Tell what there is already of an engine that was there before."""

    def version(self) -> str | None:
        """Of the engine here; None where there is none."""
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return None

    def declare(self) -> Report:
        """What would attach, without attaching."""
        version = self.version()
        if version is None:
            return Report(None)
        targets = {point: point.target() for point in self.points()}
        report = report_of(version, targets, self.evidence, tried=version in self.tried)
        return report.besides(self.not_seen)

    def hook(
        self, sink: Sink, prepare: Prepare | None = None, keyed: Callable[[Any], str] = str,
        number_of: NumberOf | None = None,
    ) -> Any:  # fmt: skip
        """Wrap the engine's functions; undone by what this returns, with `remove`. Raises HkvError
        where one is missing that evidence rests on."""
        version, name = self.version(), self.distribution
        if version is None:
            raise HkvError(f"{name} is not installed here")
        targets = {point: point.target() for point in self.points()}
        lost = [f"{p.name}: {t}" for p, t in targets.items() if isinstance(t, str) and p.loses]
        tried = f"it was tried with {', '.join(self.tried)}" if self.tried else ""
        if lost:
            raise HkvError(f"{name} {version} is not as hkvtool knows it: {lost[0]}", hint=tried)
        if version not in self.tried:
            log = logging.getLogger(f"hkvtool.{name}")
            log.warning("hkvtool has not been tried with %s %s", name, version)
        hooks = self.hooks(Tell(sink, prepare, number_of), keyed, f"{name} {version}")
        try:
            for point, target in targets.items():
                if isinstance(target, Target):
                    wrapper = point.wrapper(hooks, target.function)
                    hooks.install(point.name, target, wrapper, point.loses)
            self.take_over(hooks)
        except BaseException:
            hooks.remove()
            raise
        return hooks

    def attach(self, recording: Recording) -> Attachment:
        """Wrap them for a recording; once, however often it is asked for."""
        if self._attached is None:
            # The engine's modules are there, or `engine` would not have been imported.
            importlib.import_module(self.engine)
            self._attached = self.hook(
                recording.emit_dict, recording.emitter, recording.keyed, recording.engine_number
            )
        return self._attached

    def detach(self, recording: Recording) -> bool:
        """Put every function back; False where the engine had done nothing."""
        hooks, self._attached = self._attached, None
        if hooks is None:
            return False
        hooks.remove()
        return hooks.begun

    def geometry(self) -> Sequence[Mapping[str, Any]]:
        """What was told of pools, groups and kernels."""
        return [] if self._attached is None else list(self._attached.tell.geometry)
