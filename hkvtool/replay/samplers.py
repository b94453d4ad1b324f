"""Random schedules that find what they look for sooner than chance does.

POS: Yuan, Yang & Gu, "Partial order aware concurrency sampling" (CAV 2018). PCT: Burckhardt et
al., "A randomized scheduler with probabilistic guarantees of finding bugs" (ASPLOS 2010).
"""

from __future__ import annotations

from random import Random

from hkvtool.replay.schedules import enabled
from hkvtool.replay.window import Window


def walk(window: Window, random: Random) -> list[int]:
    """Any op that can run, with equal chances: the baseline."""
    order: list[int] = []
    done = 0
    for _ in window.ops:
        index = random.choice(enabled(window, done))
        order.append(index)
        done |= 1 << index
    return order


def pos(window: Window, random: Random) -> list[int]:
    """By random priorities, drawn again for what races with the op that ran.

    Ops that race with nothing run first: they commute with all others.
    """
    racing = window.racing
    priority = [random.random() for _ in window.ops]
    order: list[int] = []
    done = 0
    for _ in window.ops:
        can = enabled(window, done)
        plain = [index for index in can if not racing >> index & 1]
        index = plain[0] if plain else max(can, key=priority.__getitem__)
        for other in can:
            if other != index and window.conflicts[index] >> other & 1:
                priority[other] = random.random()
        order.append(index)
        done |= 1 << index
    return order


def pct(window: Window, random: Random, depth: int) -> list[int]:
    """By random priorities of lanes, of which `depth` - 1 fall at random steps.

    One run finds a bug of that depth with a chance of 1/(lanes x steps^(depth-1)) at least.
    """
    lanes = sorted({op.lane for op in window.ops})
    numbers = list(range(depth, depth + len(lanes)))
    random.shuffle(numbers)
    priority = dict(zip(lanes, numbers, strict=True))
    steps = len(window.ops)
    changes = random.sample(range(steps), min(depth - 1, steps))
    falls = {step: depth - 1 - i for i, step in enumerate(sorted(changes))}
    order: list[int] = []
    done = 0
    for step in range(steps):
        can = enabled(window, done)
        index = max(can, key=lambda i: (priority[window.ops[i].lane], -i))
        if step in falls:
            priority[window.ops[index].lane] = falls[step]
            index = max(can, key=lambda i: (priority[window.ops[i].lane], -i))
        order.append(index)
        done |= 1 << index
    return order


DEPTHS = (2, 3, 5)


def sample(window: Window, seed: int, number: int) -> tuple[str, list[int]]:
    """One schedule of the portfolio and who made it: half are by POS, half by PCT of several
    depths. Each is drawn for itself, so that whoever runs them may begin anywhere."""
    random = Random(f"{seed}:{number}")
    turn, other = divmod(number, 2)
    if not other:
        return "POS", pos(window, random)
    depth = DEPTHS[turn % len(DEPTHS)]
    return f"PCT {depth}", pct(window, random, depth)
