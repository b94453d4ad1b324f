"""Correct work of others around a case: its pools, groups and lanes, blocks of its own."""

from __future__ import annotations

from itertools import pairwise
from math import lcm
from random import Random

from .case import Case, Event
from .engine import Engine
from .fields import Places, groups_of, names_of, pools_of
from .ids import Regions
from .options import Options
from .paging import Pool
from .requests import Request
from .tables import Group, State, Table
from .tape import Tape
from .windows import Ring, Window

BEFORE_ONLY = {
    "C": "work between its steps would count as progress, and a full pool has no room for more",
}
DECLARES = {"trace", "evidence", "pool", "group", "kernel", "limits", "capture"}
_BARRIERS = {"reset", "rebase", "weights", "state", "dropped", "remap"}


def surround(case: Case, rng: Random) -> Case:
    """Interleave an engine's other requests, at moments when no step of the case is in flight."""
    engine = rng.choice(_engines(case))
    tables = _tables(case, engine, Tape())
    if not tables:
        return case
    need = _requests_tokens(tables)
    room = _room(case, tables, need)
    if room is None:
        return case
    sizes, ids = room
    seed = rng.random()
    arms = []
    for arm in case.arms:
        segments = _work(case, arm, engine, ids, Random(seed))
        arms.append(_interleave(case, arm, segments, rng, sizes))
    return Case(case.id, case.info, *arms)


def _engines(case: Case) -> list[str | None]:
    named = {p["engine"] for p in pools_of(case.bad).values() if "engine" in p}
    return [*sorted(named)] or [None]


def _tables(case: Case, engine: str | None, tape: Tape) -> list[Table]:
    """The tables that a resume in `engine` needs, as the case declares them."""
    pools = pools_of(case.bad)
    declared = {
        name: g
        for name, g in groups_of(case.bad).items()
        if g.get("participates", True)
        and pools[g["pool"]]["medium"] == "gpu"
        and pools[g["pool"]].get("engine") == engine
    }
    by_table: dict[str, list[Event]] = {}
    for name, g in declared.items():
        by_table.setdefault(g.get("table", name), []).append(g)
    tails = {g["serves"]: name for name, g in declared.items() if g["form"] == "tail"}
    tables: dict[str, Table] = {}
    spaces = {g["pool"]: Pool(tape, g["pool"], "gpu", (), 0) for g in declared.values()}
    for members in by_table.values():
        members.sort(key=lambda g: (g["form"] == "indexer", "serves" in g))
        groups = [_group(g, declared, tails) for g in members]
        lead = members[0]
        args = (tape, lead["group"], spaces[lead["pool"]], lead["block_tokens"], groups)
        if lead["form"] == "swa":
            window = Window(*args)
            window.window = lead["window"]
            window.chunked = lead.get("window_kind") == "chunked"
            window.slack = lead.get("slack", 0)
            tables[lead["group"]] = window
        elif lead["form"] == "recurrent":
            tables[lead["group"]] = State(*args)
        elif lead["form"] == "tail":
            tables[lead["group"]] = Ring(*args)
        else:
            tables[lead["group"]] = Table(*args)
    for table in tables.values():
        served = table.groups[0].served
        if table.groups[0].form == "indexer" and served:
            table.beside = tables.get(served)
    return sorted(
        tables.values(), key=lambda t: ("tail", "", "indexer").index(_rank(t.groups[0].form))
    )


def _rank(form: str) -> str:
    return form if form in ("tail", "indexer") else ""


def _group(g: Event, declared: dict[str, Event], tails: dict[str, str]) -> Group:
    served = declared.get(g.get("serves", ""), {})
    like = served if g["form"] == "tail" and "ratio" not in g else g
    ratio = like.get("ratio", 1)
    return Group(
        g["group"], g["form"], ratio, g.get("overlap", 0), tails.get(g["group"]), g.get("serves")
    )


def _requests_tokens(tables: list[Table]) -> int:
    """Tokens of the longest request of the load."""
    return 2 * lcm(*(t.bt for t in tables)) + max(t.bt for t in tables)


def _room(
    case: Case, tables: list[Table], tokens: int
) -> tuple[dict[str, int], dict[str, list[int]]] | None:
    """Sizes of pools that must grow, and ids for the load that the case never names."""
    used = Places(*case.arms).used(*case.arms)
    sizes: dict[str, int] = {}
    ids: dict[str, list[int]] = {}
    regions = Regions(case)
    for pool in {t.pool.name for t in tables}:
        declared = pools_of(*case.arms)[pool]
        wanted = sum(
            8 if isinstance(t, State) else 4 + 3 * -(-tokens // t.bt)
            for t in tables
            if t.pool.name == pool
        )
        taken = used.get(pool, set()) | set(declared.get("reserved", ())) | {0}
        last = declared["blocks"]
        free = [b for b in range(last) if b not in taken and all(regions.side(pool, b))]
        if len(free) < wanted:
            if regions.bounded(pool) or case.id[0] in BEFORE_ONLY:
                return None
            sizes[pool] = last + wanted
            free += range(last, last + wanted)
        ids[pool] = free[-wanted:]
    return sizes, ids


def _work(
    case: Case, arm: list[Event], engine: str | None, ids: dict[str, list[int]], rng: Random
) -> list[list[Event]]:
    """Runs a correct engine on the case's groups; lists of events with nothing in flight between."""
    tape = Tape()
    tables = _tables(case, engine, tape)
    pools = {}
    for name, blocks in ids.items():
        shuffled = rng.sample(blocks, len(blocks))
        pools[name] = Pool(tape, name, "gpu", shuffled, 0)
        for table in tables:
            if table.pool.name == name:
                table.pool = pools[name]
    names = {g.name for t in tables for g in t.groups}
    steps = [e["step"] for a in case.arms for e in a if "step" in e]
    unit = lcm(*(t.bt for t in tables))
    biggest = max(t.bt for t in tables)
    run = Engine(
        tape, rng, Options(lane=_lane(arm, names)), list(pools.values()), tables,
        _others(case, unit, biggest, rng), first_step=max(steps, default=0) + 1,
    )  # fmt: skip
    run.engine = engine
    run.chunk = run.budget = 2 * unit
    run.publishes = "wire" not in case.evidence and not case.has("wire")
    run.run()
    cuts = [0, *run.rests, len(tape.events)]
    pairs = pairwise(cuts)
    return [tape.events[a:b] for a, b in pairs if a < b]


def _lane(arm: list[Event], groups: set[str]) -> str | None:
    """The lane that runs the accesses of these groups."""
    for e in arm:
        if e["ev"] in ("write", "seal", "use") and "step" in e and e["group"] in groups:
            return e.get("actor")
    return None


def _others(case: Case, unit: int, biggest: int, rng: Random) -> list[Request]:
    taken = {str(x) for arm in case.arms for x in names_of(arm, "req")}
    keyed = any("key" in e for e in case.bad)
    shared = [rng.randrange(1 << 40) for _ in range(2 * unit)]
    rows = []
    for n in range(3):
        own = [rng.randrange(1 << 40) for _ in range(rng.randint(1, biggest - 1))]
        prompt = shared[: unit * rng.randint(1, 2) if n else unit] + own
        name = f"other{n}"
        while name in taken:
            name += "x"
        target = len(prompt) + min(rng.randint(1, 3), biggest - len(own))
        rows.append(Request(name, prompt, len(prompt), target, keyed=keyed))
    return rows


def _interleave(
    case: Case, arm: list[Event], segments: list[list[Event]], rng: Random, sizes: dict[str, int]
) -> list[Event]:
    cuts = cuts_of(arm)
    if case.id[0] in BEFORE_ONLY:
        cuts = {0: [min(cuts[0])]}
    chosen = cuts[rng.choice(list(cuts))]
    where = rng.choice(("spread", "spread", "start", "end"))
    if where == "spread":
        spots = sorted(rng.choice(chosen) for _ in segments)
    else:
        spots = [chosen[0] if where == "start" else chosen[-1]] * len(segments)
    roomy = [
        {**e, "blocks": sizes[e["pool"]]} if e["ev"] == "pool" and e["pool"] in sizes else e
        for e in arm
    ]
    out = lay_between(roomy, segments, spots)
    return _steps_in_order(out) if rng.random() < 0.5 and len(_engines(case)) == 1 else out


def lay_between(arm: list[Event], segments: list[list[Event]], spots: list[int]) -> list[Event]:
    """The arm with each segment put before the position that its spot, in order, gives."""
    out: list[Event] = []
    todo = list(zip(spots, segments, strict=True))
    for n, e in enumerate(arm):
        while todo and todo[0][0] == n:
            out += todo.pop(0)[1]
        out.append(e)
    for _, segment in todo:
        out += segment
    return out


def cuts_of(arm: list[Event]) -> dict[int, list[int]]:
    """Positions before which work can be put, by the stretch between barriers they lie in.

    Nothing of the case is in flight there, and the memory is mapped.
    """
    found: dict[int, list[int]] = {}
    flight: set[int] = set()
    stretch, asleep = 0, False
    for n, e in enumerate([*arm, {"ev": "end"}]):
        access = "actor" in e or e["ev"] in ("write", "use")
        after_capture = n and arm[n - 1]["ev"] == "capture" and access
        if e["ev"] not in DECLARES and not flight and not asleep and not after_capture:
            found.setdefault(stretch, []).append(n)
        if e["ev"] == "dispatch":
            flight.add(e["step"])
        elif e["ev"] == "retire":
            flight.discard(e["step"])
        elif e["ev"] in _BARRIERS:
            stretch += 1
            if e["ev"] == "rebase":
                asleep = e.get("reason") == "sleep"
    return found


def _steps_in_order(arm: list[Event]) -> list[Event]:
    """Steps numbered as they are dispatched, the lowest number kept."""
    order: dict[int, int] = {}
    first = min((e["step"] for e in arm if "step" in e), default=0)
    for e in arm:
        if e["ev"] == "dispatch":
            order.setdefault(e["step"], first + len(order))
    return [{**e, "step": order[e["step"]]} if "step" in e else e for e in arm]
