"""Streams that no engine writes: few names and small numbers, so that things collide, and now and
then a number, a name or a key that does not belong there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hkvtool.model.keys import INT_LIMIT

Data = dict[str, Any]

HUGE = (1 << 31, 1 << 40, (1 << 61) + 7, INT_LIMIT - 1)
FORMS = ("compressed", "swa", "tail", "indexer", "recurrent")
REQS = ("a", "b", "c", 1, "1")
HASHES = ("h0", "h1", "h2", "h3", "h4", 4, "4")
HANDLES = ("t0", "t1", 7, "7")
ACTORS = ("sched", "device", "worker", 3, "3")

DECLARED: list[Data] = [
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 7},
    {"ev": "pool", "pool": "cpu", "medium": "cpu", "blocks": 5},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 4},
    {"ev": "group", "group": "w", "form": "swa", "pool": "gpu", "block_tokens": 4, "window": 6},
    {"ev": "group", "group": "ix", "form": "indexer", "pool": "gpu", "block_tokens": 4,
     "table": "kv", "serves": "kv"},
    {"ev": "group", "group": "ssm", "form": "recurrent", "pool": "gpu", "block_tokens": 4},
    {"ev": "group", "group": "far", "form": "compressed", "pool": "cpu", "block_tokens": 4},
]  # fmt: skip

STRAY: Data = {
    "group": "nobody", "pool": "nowhere", "owner": "b", "pad": True, "version": 3,
    "blocks": [1, 2], "tokens": "all", "handle": "t0", "kv_version": "x", "hashes": ["h0"],
    "step": 1, "front": [1], "to": 2,
}  # fmt: skip
"""Keys that mean nothing in the events that do not have them, whatever their type."""


class Hostile:
    """One stream; `oddly` is how often a choice is an odd one."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.oddly = self.rng.choice((0.0, 0.02, 0.1))

    def lines(self, size: int) -> list[Data]:
        """Declarations, mostly all and first, and then anything."""
        rng = self.rng
        head = list(DECLARED)
        if rng.random() < 0.3:
            head = [line for line in head if rng.random() < 0.7]
        if rng.random() < 0.2:
            rng.shuffle(head)
        body = [self._line() for _ in range(rng.randrange(size))]
        if rng.random() < 0.3:
            late = [line for line in DECLARED if line not in head] + [self._group(), self._pool()]
            for line in late:
                body.insert(rng.randrange(len(body) + 1), line)
        return head + body

    # --- values ----------------------------------------------------------------------------

    def _odd(self, factor: float = 1.0) -> bool:
        return self.rng.random() < self.oddly * factor

    def _pick(self, usual: tuple[Any, ...], odd: tuple[Any, ...]) -> Any:
        return self.rng.choice(odd if self._odd() else usual)

    def _pool_name(self) -> Any:
        return self._pick(("gpu", "gpu", "gpu", "cpu"), ("1", 1, "nowhere", "٣"))

    def _group_name(self) -> Any:
        return self._pick(("kv", "kv", "w", "ix", "ssm", "far"), ("2", 2, "nobody", "02"))

    def _block(self) -> int:
        rng = self.rng
        if self._odd():
            return rng.choice((-1, -2, 8, 9, rng.choice(HUGE), -rng.choice(HUGE)))
        return rng.randrange(5)

    def _blocks(self) -> list[int]:
        return [self._block() for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3, 4)))]

    def _count(self) -> int:
        return self.rng.choice(HUGE) if self._odd() else self.rng.randrange(12)

    def _version(self) -> int:
        return self.rng.randrange(-4, 0) if self._odd() else self.rng.randrange(5)

    def _tokens(self) -> list[int]:
        if self._odd():
            return sorted((self._count(), self._count()))
        start = self.rng.choice((0, 0, 4, 8, self.rng.randrange(20)))
        return [start, start + self.rng.randrange(10)]

    def _names(self, of: tuple[Any, ...], count: int) -> list[Any]:
        return [self.rng.choice(of) for _ in range(count)]

    # --- events ----------------------------------------------------------------------------

    def _line(self) -> Data:
        rng = self.rng
        makers: list[Callable[[], Data]] = rng.choices(
            [[self._space], [self._content], [self._hash], [self._move], [self._life],
             [self._control], [self._pool, self._group]],
            [30, 25, 20, 20, 10, 6, 1],
        )[0]  # fmt: skip
        line = rng.choice(makers)()
        if rng.random() < 0.5:
            line.setdefault("req", rng.choice(REQS))
        if rng.random() < 0.4 and line["ev"] != "pool":
            line.setdefault("step", self._pick((0, 1, 2, 3), (1024, 1025, -1, 1 << 40)))
        if rng.random() < 0.3:
            line.setdefault("actor", rng.choice(ACTORS))
        if self._odd():
            key = rng.choice(list(STRAY))
            line.setdefault(key, STRAY[key])
        if self._odd(0.5):
            line[rng.choice(list(line))] = rng.choice((None, "x", -1, [], {}, 1.5, True))
        return line

    def _where(self) -> Data:
        where: Data = {}
        if self.rng.random() < 0.8:
            where["group"] = self._group_name()
        if self.rng.random() < 0.3 or (not where and not self._odd()):
            where["pool"] = self._pool_name()
        return where

    def _space(self) -> Data:
        rng = self.rng
        ev = rng.choice(
            ("alloc", "alloc", "alloc", "touch", "free", "free", "pin", "unpin", "slide")
        )
        line = {"ev": ev, "blocks": self._blocks(), **self._where()}
        if ev == "slide":
            line = {"ev": ev, "blocks": self._blocks(), "group": self._group_name(), "req": "a"}
        if ev == "alloc" and rng.random() < 0.4:
            line["tokens"] = self._tokens()
        if ev == "free" and rng.random() < 0.4:
            line["front"] = [b for b in line["blocks"] if rng.random() < 0.5] + (
                [self._block()] if self._odd() else []
            )
        if ev in ("touch", "free", "pin", "unpin") and rng.random() < 0.3:
            line["owner"] = rng.choice(REQS)
        return line

    def _content(self) -> Data:
        rng = self.rng
        ev = rng.choice(("write", "write", "write", "seal", "index", "zero", "use", "copy", "copy"))
        line: Data = {"ev": ev, "blocks": self._blocks(), "group": self._group_name()}
        if ev == "copy":
            del line["blocks"], line["group"]
            line |= {"src": self._blocks(), **self._where()}
            line["dst"] = [self._block() for _ in line["src"]]
            for key in ("src_group", "dst_group"):
                if rng.random() < 0.3:
                    line[key] = self._group_name()
        elif ev == "zero":
            line |= self._where()
        elif ev == "write" or rng.random() < 0.6:
            line["tokens"] = self._tokens()
        if ev in ("seal", "index") or (ev == "write" and rng.random() < 0.4):
            line["version"] = self._version()
        if ev == "use" and rng.random() < 0.3:
            line["blocks"] += rng.choice(([-1], [-1, 40], [-1, 3]))
        if ev == "index":
            line["kv_version"] = self._version()
        if ev == "write" and rng.random() < 0.1:
            line["pad"] = rng.random() < 0.8
        return line

    def _hash(self) -> Data:
        rng = self.rng
        ev = rng.choice(("publish", "publish", "publish", "unpublish", "unpublish", "reset"))
        if ev == "reset":
            return {"ev": ev, **({"pool": self._pool_name()} if rng.random() < 0.5 else {})}
        line: Data = {"ev": ev, "group": self._group_name(), "blocks": self._blocks()}
        line["hashes"] = self._names(HASHES, len(line["blocks"]))
        if ev == "publish":
            if rng.random() < 0.6:
                line["tokens"] = self._tokens()
            if rng.random() < 0.4:
                line["version"] = self._version()
            return line
        for key in rng.choice(((), ("hashes",), ("blocks",), ("group",), ("group", "hashes"))):
            del line[key]
        return line

    def _move(self) -> Data:
        rng = self.rng
        ev = rng.choice(("store_begin", "load_begin", "store_end", "load_end", "load_end"))
        line: Data = {"ev": ev, "handle": rng.choice(HANDLES)}
        if ev.endswith("end"):
            if rng.random() < 0.3:
                line["failed"] = self._blocks()
            if rng.random() < 0.3:
                line["ok"] = rng.random() < 0.3
            return line
        line |= {"group": self._group_name(), "blocks": self._blocks()}
        if rng.random() < 0.8:
            line["to" if ev == "store_begin" else "from"] = self._pick(
                ("cpu", "cpu", "gpu"), (1, "x")
            )
        if rng.random() < 0.7:
            line["peer"] = [self._block() for _ in line["blocks"]]
        if rng.random() < 0.5:
            line["tokens"] = self._tokens()
        for key in ("version", "kv_version"):
            if rng.random() < 0.2:
                line[key] = self._version()
        return line

    def _life(self) -> Data:
        rng = self.rng
        ev = rng.choice(
            ("dispatch", "dispatch", "rollback", "finish", "preempt", "lookup", "retire")
        )
        line: Data = {"ev": ev, "req": rng.choice(REQS)}
        if ev in ("dispatch", "retire"):
            line["step"] = self._pick((0, 1, 2, 3), (1024, 1025, -1))
        if ev == "rollback":
            line["to"] = self._count()
        if ev == "lookup":
            line["hit"] = {}
        return line

    def _pool(self) -> Data:
        rng = self.rng
        size = rng.choice((0, 2, 5, 6, 7))
        medium = rng.choice(("gpu", "cpu"))
        return {"ev": "pool", "pool": self._pool_name(), "medium": medium, "blocks": size}

    def _group(self) -> Data:
        rng = self.rng
        line = {
            "ev": "group", "group": self._group_name(), "form": rng.choice(FORMS),
            "pool": self._pool_name(), "block_tokens": self._pick((1, 2, 4), (0, *HUGE)),
        }  # fmt: skip
        if rng.random() < 0.5:
            line["table"] = rng.choice(("kv", "w", "t", 2))
        return line

    def _control(self) -> Data:
        rng = self.rng
        ev = rng.choice(("state", "state", "state", "remap", "weights", "dropped", "dropped"))
        if ev == "remap":
            places = {rng.choice(("1", "6", "8", "9", "-3")): self._block() for _ in range(2)}
            return {"ev": ev, "pool": self._pool_name(), "map": places}
        if ev == "weights":
            return {"ev": ev, "version": rng.randrange(3)}
        if ev == "dropped":
            return {"ev": ev, "count": 1, **({"pool": "gpu"} if rng.random() < 0.3 else {})}
        return self._state()

    def _state(self) -> Data:
        rng = self.rng
        blocks = self._blocks()
        columns: dict[str, Callable[[], Any]] = {
            "refs": lambda: rng.randrange(-1, 3) if self._odd() else rng.randrange(3),
            "gens": lambda: rng.randrange(4),
            "written": self._count,
            "versions": self._version,
            "groups": lambda: rng.choice((None, self._group_name())),
            "owners": lambda: rng.choice((None, "new", *REQS)),
            "hashes": lambda: rng.choice(
                (None, "h9", self._names(HASHES, 2), [rng.choice(HASHES)], *HASHES)
            ),
        }
        line: Data = {"ev": "state", "pool": self._pool_name(), "blocks": blocks}
        for key, value in columns.items():
            if rng.random() < 0.6:
                line[key] = [value() for _ in blocks]
                if self._odd(0.3):
                    line[key].append(value())
        if rng.random() < 0.4:
            line["free_order"] = self._blocks()
        return line


def hostile(seed: int, size: int = 60) -> list[Data]:
    """The lines of one stream, at most about `size` beside its declarations."""
    return Hostile(seed).lines(size)
