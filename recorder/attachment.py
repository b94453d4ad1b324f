"""What every set of hooks does with its wrappers: put on, taken off, given up when one fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from hkvtool.model.events import FORMAT
from hkvtool.recorder.guard import GuardError
from hkvtool.recorder.patches import Target, unwrap, wrap
from hkvtool.recorder.tell import Tell


class Attachment:
    """The wrappers of one attachment to an engine, where their events go, and the evidence that
    they give."""

    log: ClassVar[logging.Logger]

    def __init__(self, tell: Tell, evidence: Sequence[str]) -> None:
        self.tell = tell
        self.evidence = list(evidence)
        self.failed: dict[str, str] = {}
        """Why a hook was taken off, by name."""
        self._targets: dict[str, tuple[Target, tuple[str, ...]]] = {}
        self._begun = False

    def install(
        self, name: str, target: Target, wrapper: Callable[..., Any], gives: tuple[str, ...]
    ) -> None:
        """Wrap one function; `gives` is the evidence that goes when its hook fails."""
        wrap(target, wrapper)
        self._targets[name] = (target, gives)

    @property
    def begun(self) -> bool:
        """Whether the first line of a trace was told."""
        return self._begun

    def remove(self) -> None:
        """End the attachment. Hooks that leave marks on the engine's objects take them off too."""
        self.take_off()

    def take_off(self) -> None:
        """Put every function of the engine back."""
        for target, _ in self._targets.values():
            unwrap(target)
        self._targets.clear()

    def fail(self, name: str, error: BaseException) -> None:
        """A hook raised: it is taken off, the trace says so, and the engine goes on."""
        if isinstance(error, GuardError):
            raise error
        if name in self.failed:
            return
        self.failed[name] = f"{type(error).__name__}: {error}"
        self.log.warning("the hook on %s failed and is off: %s", name, self.failed[name])
        target, gives = self._targets.pop(name, (None, ()))
        if target is not None:
            unwrap(target)
        self._narrow(gives, f"the hook on {name} failed: {self.failed[name]}")

    def _narrow(self, gone: tuple[str, ...], why: str) -> None:
        self.evidence = [c for c in self.evidence if c not in gone]
        try:
            self.tell.event({"ev": "evidence", "evidence": list(self.evidence), "note": why})
        except GuardError:
            raise
        except Exception:
            self.log.warning("nothing is recorded any more: %s", why)

    def _open(self, engine: str, note: str, **besides: Any) -> None:
        """The first line of a trace."""
        self._begun = True
        event: dict[str, Any] = {
            "ev": "trace", "format": FORMAT, "engine": engine, "evidence": list(self.evidence),
            **besides,
        }  # fmt: skip
        if note:
            event["note"] = note
        self.tell.event(event)
