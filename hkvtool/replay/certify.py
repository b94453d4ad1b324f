"""Every order of a window that differs in what its reads get, once each, if there are not too many.

Depth-first with sleep sets (Godefroid, LNCS 1032, 1996): of orders that differ only in ops that
touch no common byte, one is run. Blocked runs are counted too: they are work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hkvtool.replay.schedules import Failure, Runner, enabled
from hkvtool.replay.window import Window


@dataclass
class Frontier:
    """How far an exhaustive search has come; it goes on from there.

    One frame a step: what was done, what still to try, what sleeps; the path is the op of each.
    """

    frames: list[tuple[int, list[int], int]]
    path: list[int] = field(default_factory=list)
    orders: int = 0
    blocked: int = 0

    @classmethod
    def of(cls, window: Window) -> Frontier:
        """Nothing is tried yet."""
        return cls([(0, enabled(window, 0), 0)])

    def copy(self) -> Frontier:
        """The same place, from where another may go on."""
        frames = [(done, list(todo), sleep) for done, todo, sleep in self.frames]
        return Frontier(frames, list(self.path), self.orders, self.blocked)


@dataclass(frozen=True)
class Certificate:
    """What an exhaustive search saw; `complete` where it came to its end."""

    orders: int
    blocked: int
    complete: bool
    failing: list[tuple[list[int], Failure]]


def certify(
    window: Window, runner: Runner, budget: int, *, most_failing: int = 1,
    stopped: Callable[[], bool] = lambda: False, at: Frontier | None = None,
) -> Certificate:  # fmt: skip
    """Run inequivalent orders until all are run, so many failed, or `budget` more are used up.

    `at` is where to go on, and is where the search has come to afterwards.
    """
    size = len(window.ops)
    everything = (1 << size) - 1
    at = Frontier.of(window) if at is None else at
    frames, path = at.frames, at.path
    failing: list[tuple[list[int], Failure]] = []
    most = at.orders + at.blocked + budget
    complete = True
    while frames:
        if at.orders + at.blocked >= most or stopped():
            complete = False
            break
        done, todo, sleep = frames[-1]
        if done == everything:
            at.orders += 1
            failure = runner.run(path)
            if failure is not None:
                failing.append((list(path), failure))
            frames.pop()
            if path:
                path.pop()
            if len(failing) >= most_failing:
                complete = False
                break
            continue
        awake = [index for index in todo if not sleep >> index & 1]
        if not awake:
            # Blocked where none of its first choices was awake; else all of them have been tried.
            frames.pop()
            if path:
                path.pop()
            continue
        index = awake[0]
        frames[-1] = (done, [i for i in todo if i != index], sleep | 1 << index)
        # What sleeps stays asleep as long as nothing it conflicts with has run.
        below = sleep & ~window.conflicts[index]
        after = done | 1 << index
        can = enabled(window, after)
        if after != everything and all(below >> i & 1 for i in can):
            at.blocked += 1
            continue
        path.append(index)
        frames.append((after, can, below))
    return Certificate(at.orders, at.blocked, complete, failing)
