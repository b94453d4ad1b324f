"""Mutation of clean traces: what share of the harmful mutants does the checker catch?

A mutant is a correct trace with one event deleted, moved or changed. Whether that does harm is
judged without the checker: by the bytes that every read would get (`memory`), by races under the
text of the format (`races_judge`), and for layouts and versions by what they are. What only the
books say (a reference too few) has no such judge, and is counted apart.

`python -m tests.variants.mutants --traces 40 --each 3` prints the table of the docs.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hkvtool.model.layout import RULE_OF_KEY
from variants.correct import correct_run
from variants.memory import Memory
from variants.options import Options, random_options
from variants.races_judge import race
from variants.requests import Request
from variants.verdict import report_on

Event = dict[str, Any]
Mutant = tuple[str, list[Event]]
Operator = Callable[[list[Event], Random], "Mutant | None"]

DECLARED = {"trace", "pool", "group", "kernel", "limits", "evidence"}
HOST = {"alloc", "touch", "free", "publish", "unpublish", "slide", "lookup", "resume", "pin",
        "unpin"}  # fmt: skip
DEVICE = {"write", "seal", "index", "use", "zero", "copy"}
MOVES = {"store_begin", "load_begin", "store_end", "load_end"}
EDGES = {"signal", "wait", "dispatch", "retire"}


def _pick(events: list[Event], rng: Random, kinds: Iterable[str], *keys: str) -> int | None:
    wanted = set(kinds)
    found = [n for n, e in enumerate(events) if e["ev"] in wanted and all(e.get(k) for k in keys)]
    return rng.choice(found) if found else None


def _changed(events: list[Event], n: int, **keys: Any) -> list[Event]:
    return [*events[:n], {**events[n], **keys}, *events[n + 1 :]]


def _delete(kinds: Iterable[str]) -> Operator:
    def operate(events: list[Event], rng: Random) -> Mutant | None:
        n = _pick(events, rng, kinds)
        return None if n is None else (events[n]["ev"], [*events[:n], *events[n + 1 :]])

    return operate


def _move(kinds: Iterable[str]) -> Operator:
    """An event up to a dozen places later, or earlier."""

    def operate(events: list[Event], rng: Random) -> Mutant | None:
        n = _pick(events, rng, kinds)
        if n is None:
            return None
        first = next(i for i, e in enumerate(events) if e["ev"] not in DECLARED)
        to = min(len(events) - 1, max(first, n + rng.choice((-1, 1)) * rng.randint(1, 12)))
        rest = [*events[:n], *events[n + 1 :]]
        return events[n]["ev"], [*rest[:to], events[n], *rest[to:]]

    return operate


def _block(kinds: Iterable[str]) -> Operator:
    """One block id is another of the same pool that has been given out by then: of one that has
    not, nothing is known, and `hkv/1` lets no rule speak of it."""

    def operate(events: list[Event], rng: Random) -> Mutant | None:
        n = _pick(events, rng, kinds, "blocks")
        if n is None:
            return None
        event = events[n]
        pools = {e["group"]: e["pool"] for e in events if e["ev"] == "group"}
        pool = event.get("pool") or pools.get(event.get("group"))
        others = sorted(
            {b for e in events[:n] if e["ev"] == "alloc" for b in e["blocks"]
             if (e.get("pool") or pools.get(e.get("group"))) == pool} - set(event["blocks"])
        )  # fmt: skip
        if not others:
            return None
        blocks = list(event["blocks"])
        blocks[rng.randrange(len(blocks))] = rng.choice(others)
        return event["ev"], _changed(events, n, blocks=blocks)

    return operate


def _request(events: list[Event], rng: Random) -> Mutant | None:
    """What one request did is another's."""
    n = _pick(events, rng, DEVICE | HOST, "req")
    names = sorted({e["req"] for e in events if "req" in e})
    if n is None or len(names) < 2:
        return None
    other = rng.choice([name for name in names if name != events[n]["req"]])
    return events[n]["ev"], _changed(events, n, req=other)


def _tokens(events: list[Event], rng: Random) -> Mutant | None:
    """A range of tokens is shifted by a block."""
    n = _pick(events, rng, {"write", "seal", "index", "use"}, "tokens")
    if n is None:
        return None
    group = next(e for e in events if e["ev"] == "group" and e["group"] == events[n]["group"])
    by = group["block_tokens"] * rng.choice((-1, 1))
    start, end = events[n]["tokens"]
    if start + by < 0:
        by = -by
    return events[n]["ev"], _changed(events, n, tokens=[start + by, end + by])


def _version(events: list[Event], rng: Random) -> Mutant | None:
    """Indexer rows of another KV version than the data they route to."""
    n = _pick(events, rng, {"index"}, "kv_version")
    if n is None:
        return None
    return "index", _changed(events, n, kv_version=events[n]["kv_version"] + rng.choice((-1, 1)))


def _layout(events: list[Event], rng: Random) -> Mutant | None:
    """A consumer expects one layout key otherwise than its producer states it."""
    groups = {e["group"]: e for e in events if e["ev"] == "group"}
    places = [
        (n, key)
        for n, e in enumerate(events) if e["ev"] == "kernel"
        for key in e["expects"] if key in RULE_OF_KEY and key in groups[e["group"]].get("layout", {})
    ]  # fmt: skip
    if not places:
        return None
    n, key = rng.choice(places)
    value = events[n]["expects"][key]
    other = value + 64 if isinstance(value, int) else f"{value}-other"
    return key, _changed(events, n, expects={**events[n]["expects"], key: other})


def _edge_lost(events: list[Event], rng: Random) -> Mutant | None:
    """A wait that is not made, or is made for something else."""
    n = _pick(events, rng, {"wait"})
    return None if n is None else ("wait", [*events[:n], *events[n + 1 :]])


OPERATORS: dict[str, Operator] = {
    "delete a device access": _delete(DEVICE),
    "delete a host event": _delete(HOST),
    "delete a transfer's begin or end": _delete(MOVES),
    "delete an edge": _edge_lost,
    "delete a dispatch or retire": _delete({"dispatch", "retire"}),
    "move a device access": _move(DEVICE),
    "move a host event": _move(HOST),
    "move a transfer's begin or end": _move(MOVES),
    "move an edge": _move({"signal", "wait"}),
    "change a block of an access": _block(DEVICE - {"copy"}),
    "change a block of a host event": _block(HOST - {"lookup", "resume"}),
    "change a block of a transfer": _block({"store_begin", "load_begin"}),
    "change the request": _request,
    "shift the tokens": _tokens,
    "change a KV version": _version,
    "change a layout key": _layout,
}


# --- the judges ------------------------------------------------------------------------------


def harm(
    operator: str, mutant: Mutant, requests: Sequence[Request], options: Options, raced: bool
) -> str | None:
    """Why a mutant does harm, by a judge that is not the checker; None where none says so.

    `raced` says that the trace had races by the judge's measure before it was changed.
    """
    kind, events = mutant
    if operator == "change a layout key":
        return f"both sides state {kind}, and not the same"
    if operator == "change a KV version":
        return "rows of another version are read" if _rows_read(events) else None
    if options.late_device and operator == "delete a dispatch or retire":
        # The memory puts a step's accesses behind its dispatch: without one it loses them.
        return None
    try:
        wrong = next(iter(Memory(requests).run(events, options.late_device)), None)
    except (KeyError, IndexError, ValueError):
        return None
    if wrong is not None:
        return f"line {wrong[0]}: {wrong[1]}"
    if raced or not options.streams or options.layerwise:
        return None
    pair = race(events)
    return None if pair is None else f"lines {pair[0]} and {pair[1]} race"


def _rows_read(events: Sequence[Event]) -> bool:
    """Whether a use reads rows whose KV version is not that of the data written last."""
    groups = {e["group"]: e for e in events if e["ev"] == "group"}
    rows: dict[tuple[str, int], int] = {}
    data: dict[tuple[str, int], int] = {}
    for e in events:
        if e["ev"] in ("write", "seal") and "version" in e:
            data.update({(e["group"], b): e["version"] for b in e["blocks"]})
        elif e["ev"] == "index":
            rows.update({(e["group"], b): e["kv_version"] for b in e["blocks"]})
        elif e["ev"] == "use" and groups[e["group"]].get("serves"):
            served = groups[e["group"]]["serves"]
            for b in e["blocks"]:
                row, of = rows.get((e["group"], b)), data.get((served, b))
                if row is not None and of is not None and row != of:
                    return True
    return False


# --- the study -------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of the mutants of one operator."""

    tried: int = 0
    harmful: int = 0
    caught: int = 0
    told: int = 0
    """Mutants that no judge calls harmful, and that the checker has something to say about."""
    rules: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    """What was missed, why that does harm, and the number of the trace."""


def study(
    traces: int, each: int, seed: int = 0, changes: Callable[[Random], Options] = random_options
) -> dict[str, Tally]:
    """`each` mutants by every operator of so many clean traces."""
    found: dict[str, Tally] = defaultdict(Tally)
    for number in range(seed, seed + traces):
        rng = Random(f"mutants {number}")
        options = _whole(changes(rng))
        events, requests = correct_run(number, options)
        raced = options.streams and not options.layerwise and race(events) is not None
        for operator, operate in OPERATORS.items():
            for _ in range(each):
                mutant = operate(events, rng)
                if mutant is not None:
                    _count(found[operator], operator, mutant, requests, options, raced, number)
    return found


def _whole(options: Options) -> Options:
    """The same engine, recorded from the start to the end, with few requests."""
    return replace(options, attach=None, dropped=False, rotate=False, requests=4, remap=False,
                   weights=False)  # fmt: skip


def _count(
    tally: Tally, operator: str, mutant: Mutant, requests: Sequence[Request], options: Options,
    raced: bool, number: int,
) -> None:  # fmt: skip
    tally.tried += 1
    why = harm(operator, mutant, requests, options, raced)
    report = report_on(mutant[1])
    codes = [f.code for f in report.findings if str(f.severity) == "error" and not f.cause]
    if why is None:
        tally.told += bool(codes)
        return
    tally.harmful += 1
    if codes:
        tally.caught += 1
        tally.rules.update(set(codes))
    else:
        tally.missed.append(f"{mutant[0]}: {why} (trace {number})")


def table(found: dict[str, Tally]) -> Iterator[str]:
    """The study as a table in Markdown."""
    yield "| mutation | mutants | harmful | caught | share | by rule | told of the rest |"
    yield "|---|---|---|---|---|---|---|"
    total = Tally()
    for operator in [*(o for o in OPERATORS if o in found), ""]:
        tally = found.get(operator, total)
        if operator:
            total.tried += tally.tried
            total.harmful += tally.harmful
            total.caught += tally.caught
            total.told += tally.told
        share = f"{100 * tally.caught / tally.harmful:.1f} %" if tally.harmful else "-"
        rules = ", ".join(f"{code[3:]} ({n})" for code, n in tally.rules.most_common(4))
        yield (
            f"| {operator or '**all**'} | {tally.tried:,} | {tally.harmful:,} | {tally.caught:,} | "
            f"{share} | {rules} | {tally.told:,} of {tally.tried - tally.harmful:,} |"
        )


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--traces", type=int, default=20)
    a.add_argument("--each", type=int, default=2)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--missed", type=int, default=10, help="show so many that were missed")
    o = a.parse_args()
    found = study(o.traces, o.each, o.seed)
    print("\n".join(table(found)))
    for operator, tally in found.items():
        for missed in tally.missed[: o.missed]:
            print(f"missed: {operator}: {missed}")


if __name__ == "__main__":
    main()
