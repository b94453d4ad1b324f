"""How far a search has come, kept in a file so that it goes on instead of beginning anew.

Plain JSON of numbers and names: nothing in it is run, and what does not fit the window is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.replay.certify import Frontier
from hkvtool.replay.schedules import Failure, Runner, fingerprint, spell
from hkvtool.replay.window import Window

FORMAT = "hkvtool-search/1"
MOST_VERDICTS = 200_000
"""Schedules whose verdicts are kept."""

_MOST_BYTES = 256 << 20


@dataclass
class Searched:
    """What is known of one window: verdicts by schedule, and where sampling and sleep sets are."""

    window: str
    seed: int
    verdicts: dict[str, bool] = field(default_factory=dict)
    """Whether a schedule fails."""
    found: list[tuple[str, int, str]] = field(default_factory=list)
    """Who found a failing schedule, as which run, and the schedule."""
    ran: int = 0
    sampled: int = 0
    frontier: Frontier | None = None
    complete: bool = False

    @classmethod
    def of(cls, window: Window, seed: int) -> Searched:
        return cls(fingerprint(window), seed)

    def as_json(self) -> dict[str, Any]:
        at = self.frontier
        return {
            "format": FORMAT, "window": self.window, "seed": self.seed, "ran": self.ran,
            "sampled": self.sampled, "complete": self.complete, "found": self.found,
            "verdicts": self.verdicts,
            "frontier": None if at is None else {
                "orders": at.orders, "blocked": at.blocked, "path": at.path,
                "frames": [[hex(done), todo, hex(sleep)] for done, todo, sleep in at.frames],
            },
        }  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the file whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(self.as_json(), file)
            part.replace(path)
        except OSError as e:
            raise HkvError(
                f"what was searched cannot be kept: {e.strerror or e}", where=str(path),
                hint="name another file with --state",
            ) from e  # fmt: skip
        finally:
            part.unlink(missing_ok=True)


def load(path: Path, window: Window, seed: int) -> Searched | None:
    """What a file knows of this window and seed; None where there is no file. Raises HkvError
    where it is of another search, or damaged."""
    try:
        with path.open("rb") as file:
            # Not as large as it says: a device says that it is empty, and never ends.
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise HkvError("the state of a search is never so large", where=str(path))
        data = json.loads(text)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as e:
        raise _damaged(path) from e
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _damaged(path)
    if data.get("window") != fingerprint(window) or data.get("seed") != seed:
        raise HkvError(
            "the state is of another search: another window, seed or way", where=str(path),
            hint="give another --state, or --fresh to begin anew",
        )  # fmt: skip
    try:
        return _read(data, len(window.ops))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise _damaged(path) from e


def _read(data: dict[str, Any], size: int) -> Searched:
    verdicts = {str(text): bool(fails) for text, fails in data["verdicts"].items()}
    found = [(str(by), int(run), str(text)) for by, run, text in data["found"]]
    at = data["frontier"]
    frontier = None
    if at is not None:
        frames = [
            (int(done, 16), [_index(i, size) for i in todo], int(sleep, 16))
            for done, todo, sleep in at["frames"]
        ]
        path = [_index(i, size) for i in at["path"]]
        if len(frames) not in (0, len(path) + 1) or any(max(d, s) >> size for d, _, s in frames):
            raise ValueError("frames and path do not fit")
        frontier = Frontier(frames, path, int(at["orders"]), int(at["blocked"]))
    return Searched(
        data["window"], data["seed"], verdicts, found, int(data["ran"]), int(data["sampled"]),
        frontier, bool(data["complete"]),
    )  # fmt: skip


def _index(value: object, size: int) -> int:
    if not isinstance(value, int) or not 0 <= value < size:
        raise ValueError("no op of this window")
    return value


def _damaged(path: Path) -> HkvError:
    return HkvError(
        "this is no state of a search", where=str(path),
        hint="give another --state, or --fresh to begin anew",
    )  # fmt: skip


class Remembering(Runner):
    """Runs each schedule once; one that is known to pass is not run again."""

    def __init__(self, window: Window, known: Searched) -> None:
        super().__init__(window)
        self._verdicts = known.verdicts
        self.told: Iterator[tuple[str, bool]] | None = None
        """Verdicts of who ran the next orders elsewhere, in the order in which they are asked."""

    def run(self, order: Sequence[int]) -> Failure | None:
        if self.told is not None:
            return self.take(next(self.told), order)
        text = spell(self.window, order)
        if self._verdicts.get(text) is False:
            return None
        failure = super().run(order)
        self._keep(text, failure is not None)
        return failure

    def take(self, verdict: tuple[str, bool], order: Sequence[int]) -> Failure | None:
        """The same by the verdict of somebody else; what fails is run here, to see how."""
        text, fails = verdict
        if self._verdicts.get(text) is False:
            return None
        if fails:
            failure = super().run(order)
        else:
            self.ran += 1
            failure = None
        self._keep(text, fails)
        return failure

    def _keep(self, text: str, fails: bool) -> None:
        if len(self._verdicts) < MOST_VERDICTS:
            self._verdicts[text] = fails
