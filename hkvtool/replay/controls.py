"""The control arm of a finding: the same run with its cause taken away, by rule.

A race gets the edge it lacks. A missing form gets its recovery route: the missing tokens are
computed again where they are read from, a component that was left behind is moved too. A layout
that two sides disagree on is the producer's, a stale graph is captured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.replay.arms import Arm, Plan
from hkvtool.state.accesses import Access, accesses
from hkvtool.state.fold import Fold


@dataclass(frozen=True)
class Recovery:
    """What a rule's control does, in words."""

    words: str
    plan: Callable[[Finding, Sequence[Event], Arm], list[Event]]


def control_of(finding: Finding, events: Sequence[Event], fault: Arm) -> Plan | None:
    """The control of a finding that is no race; None where the rule has none."""
    if finding.code[3] in "24" and fault.plan.believed is not None:
        return Plan("all sides use the producer's layout")
    if finding.code == "HKV801":
        return Plan("the graph is captured again before it is launched", recapture=True)
    recovery = _RECOVERIES.get(finding.code)
    if recovery is None:
        return None
    changed = recovery.plan(finding, events, fault)
    fresh = _fresh(events, changed)
    return Plan(recovery.words, _with_blocks(changed, fresh), fresh=frozenset(fresh))


def _fresh(events: Sequence[Event], changed: Sequence[Event]) -> set[tuple[str, int]]:
    """Pool and number of blocks that a control takes and the recording never names."""
    pools = {str(e["group"]): str(e["pool"]) for e in events if e.ev == "group"}
    known = {block for event in events for block in _named(event)}
    return {
        (pools[str(event["group"])], block)
        for event in changed if event.ev in ("alloc", "write") and str(event.get("group")) in pools
        for block in event["blocks"] if block not in known
    }  # fmt: skip


def _named(event: Event) -> Iterable[int]:
    for key in ("blocks", "src", "dst", "peer"):
        value = event.get(key)
        if isinstance(value, list):
            yield from (block for block in value if isinstance(block, int))


def _with_blocks(events: list[Event], fresh: set[tuple[str, int]]) -> list[Event]:
    """Pools are large enough for the blocks that were taken."""
    out = []
    for event in events:
        if event.ev == "pool":
            most = max((b + 1 for pool, b in fresh if pool == str(event["pool"])), default=0)
            if most > event["blocks"]:
                event = Event(event.pos, event.ev, {**event.data, "blocks": most})
        out.append(event)
    return out


# --- recompute -----------------------------------------------------------------------------


def _recomputed(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """Tokens that were read wrong are computed again before they are read, in blocks of the
    reader's own."""
    by_pos = {e.pos: e for e in events}
    wrong = fault.account.tokens_at
    cut: dict[int, int] = {}
    missing: dict[tuple[str, str], set[tuple[int, int]]] = {}
    first_use: dict[tuple[str, str], int] = {}
    for about in fault.account.readers.values():
        event = by_pos.get(about.pos)
        if event is None or event.req is None:
            continue
        if event.ev == "load_begin":
            _cut(event, about.pool, fault, cut)
        elif event.ev in ("use", "seal"):
            key = (event.req, about.group)
            missing.setdefault(key, set()).update(wrong.get(about.pos, ()))
            first_use[key] = min(first_use.get(key, about.pos), about.pos)
    places = _Places(events)
    for pos, kept in cut.items():
        _uncover(by_pos[pos], kept, events, places, missing, first_use)
    return _inserted(events, places, cut, missing, first_use)


def _cut(event: Event, pool: str, fault: Arm, cut: dict[int, int]) -> None:
    """A load whose source is wrong brings only the blocks before the first wrong one."""
    bad = {block for name, block in fault.account.blocks_at.get(event.pos, ()) if name == pool}
    peers = list(event.get("peer") or ())
    first = next((i for i, peer in enumerate(peers) if peer in bad), len(peers))
    cut[event.pos] = first


def _uncover(
    load: Event, kept: int, events: Sequence[Event], places: _Places,
    missing: dict[tuple[str, str], set[tuple[int, int]]], first_use: dict[tuple[str, str], int],
) -> None:  # fmt: skip
    """What a cut load no longer brings is to be computed too."""
    key = (str(load.req), str(load["group"]))
    for block in load["blocks"][kept:]:
        start = places.starts.get((load.pos, block))
        if start is not None:
            unit = places.unit(key[1])
            hit = places.hits.get(key[0], start + unit)
            tokens = range(start, min(start + unit, hit))
            missing.setdefault(key, set()).update((block, t) for t in tokens)
    for event in events:
        if event.pos > load.pos and event.ev == "use" and event.req == load.req:
            if event.get("group") == load["group"]:
                first_use[key] = min(first_use.get(key, event.pos), event.pos)
                return


class _Places:
    """Where blocks stand and whose they are, as far as a control needs to know."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.fold = Fold()
        self.owner: dict[tuple[int, str, int], str | None] = {}
        self.starts: dict[tuple[int, int], int] = {}
        self.hits: dict[str, int] = {}
        self.ids: dict[str, set[int]] = {}
        for event in events:
            event = event.meant
            if event.problem is None and self.fold.apply(event) is None:
                self._note(event)

    def unit(self, group: str) -> int:
        found = self.fold.group(group)
        return found.block_tokens if found else 1

    def _note(self, event: Event) -> None:
        st = self.fold.st
        if event.ev == "lookup":
            self.hits[str(event.req)] = max([0, *event["hit"].values()])
        if event.ev == "load_begin":
            group = self.fold.group(event["group"])
            for block in event["blocks"]:
                slot = None if group is None else self.fold.find(group.pool, block)
                if slot is not None:
                    self.starts[event.pos, block] = int(st.start[slot])
        for access in accesses(event, self.fold.declared):
            if access.pool is None:
                continue
            self.ids.setdefault(access.pool.name, set()).update((*access.places, *access.blocks))
            if event.ev in ("use", "seal"):
                self._owners(event, access)

    def _owners(self, event: Event, access: Access) -> None:
        st = self.fold.st
        assert access.pool is not None
        for block, place in zip(access.blocks, access.places, strict=False):
            slot = self.fold.find(access.pool, block)
            if slot is not None:
                owner = st.owner[slot]
                of_other = access.group is not None and st.table[slot] != access.group.table_id
                name = None if owner < 0 else str(self.fold.names.name("req", owner))
                shared = st.refs[slot] > 1 or st.live[slot] > 0 or of_other
                self.owner[event.pos, access.pool.name, place] = None if shared else name

    def fresh(self, pool: str, many: int) -> list[int]:
        """Blocks of a pool that nothing has named, beyond its end where there are none left."""
        found = self.fold.declared.pools[pool]
        taken = self.ids.setdefault(pool, set()) | found.reserved
        inside = (b for b in range(found.blocks - 1, -1, -1) if b not in taken)
        free = chain(inside, (b for b in count(found.blocks) if b not in taken))
        got = [b for _, b in zip(range(many), free, strict=False)]
        taken.update(got)
        self.ids[pool].update(got)
        return got


def _inserted(
    events: Sequence[Event], places: _Places, cut: dict[int, int],
    missing: dict[tuple[str, str], set[tuple[int, int]]], first_use: dict[tuple[str, str], int],
) -> list[Event]:  # fmt: skip
    renamed: dict[tuple[str, str], dict[int, int]] = {}
    before: dict[int, list[Event]] = {}
    by_pos = {e.pos: e for e in events}
    for (req, name), rows in missing.items():
        if (req, name) not in first_use:
            continue
        use, group = by_pos[first_use[req, name]], places.fold.group(name)
        if group is None:
            continue
        back = {place: block for block, place in group.pool.map.items()}
        names = renamed.setdefault((req, group.table), {})
        for place, pairs in groupby(sorted(rows), key=lambda row: row[0]):
            block = back.get(place, place)
            tokens = [t for _, t in pairs]
            if places.owner.get((use.pos, group.pool.name, place), req) != req:
                if block not in names:
                    got = places.fresh(group.pool.name, 1)
                    if not got:
                        continue
                    names[block] = got[0]
                    start = min(tokens) // group.block_tokens * group.block_tokens
                    tokens_of = [start, start + group.block_tokens]
                    taken = _event(use, "alloc", req=req, group=name, blocks=got,
                                   tokens=tokens_of, actor="sched")  # fmt: skip
                    first = before.setdefault(use.pos, [])
                    first.append(taken)
                    # What is right in the block stays so.
                    first += [
                        _event(use, "copy", req=req, group=mate.name, src=[block], dst=got)
                        for mate in places.fold.declared.mates(group)
                    ]
                block = names[block]
            before.setdefault(use.pos, []).extend(_writes(use, req, group, block, tokens))
    return list(_rewritten(events, places, before, renamed, first_use, cut))


def _writes(use: Event, req: str, group: Any, block: int, tokens: list[int]) -> list[Event]:
    """Events that write these entries (known by their last tokens) into a block."""
    ratio = 1 if group.form == "recurrent" else group.ratio
    out = []
    run: list[int] = []
    for token in [*tokens, None]:
        if run and (token is None or token != run[-1] + ratio):
            span = [run[0] - ratio + 1, run[-1] + 1]
            more: dict[str, Any] = {}
            kind = "write"
            if group.form == "indexer":
                kind, more = "index", {"version": _LATEST, "kv_version": _LATEST}
            elif group.ratio > 1:
                kind, more = "seal", {"version": 1}
            out.append(_event(use, kind, req=req, group=group.name, blocks=[block], tokens=span,
                              **more))  # fmt: skip
            run = []
        if token is not None:
            run.append(token)
    return out


def _event(like: Event, ev: str, **data: Any) -> Event:
    """An event beside another: on its lane, of its step."""
    given: dict[str, Any] = {"ev": ev, "actor": like.actor}
    if like.step is not None and ev not in ("alloc",):
        given["step"] = like.step
    return Event(like.pos, ev, {**given, **data})


def _rewritten(
    events: Sequence[Event], places: _Places, before: dict[int, list[Event]],
    renamed: dict[tuple[str, str], dict[int, int]], first_use: dict[tuple[str, str], int],
    cut: dict[int, int],
) -> Iterable[Event]:  # fmt: skip
    start = min(first_use.values(), default=0)
    dropped = {str(e["handle"]) for e in events if cut.get(e.pos) == 0}
    for event in events:
        yield from before.get(event.pos, ())
        if event.ev in ("load_begin", "load_end") and str(event.get("handle")) in dropped:
            continue
        data = dict(event.data)
        if event.pos in cut:
            kept = cut[event.pos]
            data["blocks"], data["peer"] = data["blocks"][:kept], data["peer"][:kept]
            if "tokens" in data:
                unit = places.unit(str(data["group"]))
                first = data["tokens"][0] // unit * unit
                data["tokens"] = [data["tokens"][0], min(data["tokens"][1], first + kept * unit)]
        if event.pos >= start and event.req is not None and event.ev in _ACCESSING:
            group = places.fold.group(event.get("group"))
            names = renamed.get((event.req, group.table), {}) if group else {}
            if names:
                data["blocks"] = [names.get(b, b) for b in data["blocks"]]
        yield Event(event.pos, event.ev, data, event.problem, event.raw)


_LATEST = 1 << 20
"""A version later than any that a block has."""

_ACCESSING = frozenset({"use", "write", "seal", "index", "store_begin", "load_begin"})


# --- the component moves too ---------------------------------------------------------------


def _moved_too(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """Whatever moved the others moves the component that was left behind."""
    named = set(finding.events)
    handles = {str(e["handle"]) for e in events
               if e.pos in named and e.ev in ("store_begin", "load_begin")}  # fmt: skip
    out = []
    for event in events:
        out.append(event)
        data = dict(event.data)
        if event.ev == "copy" and event.pos in named:
            out.append(Event(event.pos, "copy", {**data, "group": finding.group, **_own_pair(
                finding, events, event)}))  # fmt: skip
        elif str(data.get("handle")) in handles and event.ev.endswith(("_begin", "_end")):
            data["handle"] = f"{data['handle']} with {finding.group}"
            if event.ev.endswith("_begin"):
                data["group"] = finding.group
            out.append(Event(event.pos, event.ev, data))
    return out


def _own_pair(finding: Finding, events: Sequence[Event], copy: Event) -> dict[str, list[int]]:
    """The blocks of the component's own table that stand where the copied ones do: those that its
    reader names before and behind the copy. Nothing where it shares the copied blocks."""
    tables = {str(e["group"]): e.get("table", e["group"]) for e in events if e.ev == "group"}
    if tables.get(str(finding.group)) == tables.get(str(copy.get("group"))):
        return {}
    reads = [e for e in events if e.ev == "use" and e.req == finding.request
             and e.get("group") == finding.group]  # fmt: skip
    before: list[int] = next((e["blocks"] for e in reversed(reads) if e.pos < copy.pos), [])
    behind: list[int] = next((e["blocks"] for e in reads if e.pos > copy.pos), [])
    pairs = [(a, b) for a, b in zip(before, behind, strict=False)
             if a != b and b in finding.blocks]  # fmt: skip
    return {"src": [a for a, _ in pairs], "dst": [b for _, b in pairs]} if pairs else {}


# --- others --------------------------------------------------------------------------------


def _with_room(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """Pages are as large as their entries, and lie so far apart."""
    tight = ("page_bytes", "stride_bytes", "region_bytes")
    out = []
    for event in events:
        if event.ev == "group" and str(event["group"]) == finding.group and "layout" in event:
            layout = {k: v for k, v in event["layout"].items() if k not in tight}
            event = Event(event.pos, event.ev, {**event.data, "layout": layout})
        out.append(event)
    return out


def _by_the_map(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    return [
        Event(e.pos, e.ev, {k: v for k, v in e.data.items() if k != "index"})
        if e.pos == finding.use else e
        for e in events
    ]  # fmt: skip


def _stays(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """The memory stays where it is until its users are done; one that slept never did."""
    named = set(finding.events)
    asleep: set[object] = set()
    out = []
    for event in events:
        if event.ev == "rebase":
            where = event.get("pool"), event.get("group")
            if event.pos in named:
                if event.get("reason") == "sleep":
                    asleep.add(where)
                continue
            if where in asleep and event.get("reason") == "wake":
                asleep.discard(where)
                continue
        out.append(event)
    return out


def _zeroed(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """The blocks are cleared before their new form is first written, by whichever component."""
    fold = _Places(events).fold
    group = fold.group(finding.group)
    mates = {mate.name for mate in fold.declared.mates(group)} if group else set()
    done: set[int] = set()
    out = []
    for event in events:
        mine = event.req == finding.request and event.get("group") in mates
        if mine and event.ev in ("write", "seal", "index"):
            blocks = [b for b in event["blocks"] if b in finding.blocks and b not in done]
            done.update(blocks)
            if blocks:
                out.append(_event(event, "zero", pool=finding.pool, blocks=blocks))
        out.append(event)
    return out


def _padding_apart(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """Padding rows write the null block, and it is cleared before they read it."""
    places = _Places(events)
    out = []
    for event in events:
        if event.get("pad") is not True or event.ev not in ("write", "use"):
            out.append(event)
            continue
        group = places.fold.group(event.get("group"))
        null = sorted(group.pool.reserved)[:1] if group else []
        if event.ev == "use":
            out.append(_event(event, "zero", group=event["group"], blocks=list(event["blocks"])))
            out.append(event)
            continue
        target = null or (places.fresh(group.pool.name, 1) if group else [])
        data = {k: v for k, v in event.data.items() if k != "index"}
        out.append(Event(event.pos, event.ev, {**data, "blocks": target * len(event["blocks"])}))
    return out


def _kept_back(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """Blocks that were given up once too often stay where they are promised: whoever is given
    them next is given others."""
    places = _Places(events)
    pool = finding.pool
    named = finding.events[0] if finding.events else 0
    moved: dict[str, dict[int, int]] = {}
    out = []
    for event in events:
        data = dict(event.data)
        _, where = places.fold.place(event)
        group = places.fold.group(event.get("group"))
        if event.pos > named and event.ev == "alloc" and where is not None and where.name == pool:
            taken = [b for b in event["blocks"] if b in finding.blocks]
            got = places.fresh(str(pool), len(taken))
            if taken and len(got) == len(taken):
                moved.setdefault(str(event.req), {}).update(zip(taken, got, strict=True))
        names = moved.get(str(event.req), {})
        if names:
            if where is not None and where.name == pool and "blocks" in data:
                data["blocks"] = [names.get(b, b) for b in data["blocks"]]
            if "peer" in data and str(data.get("to", data.get("from"))) == pool:
                data["peer"] = [names.get(b, b) for b in data["peer"]]
            del group
        out.append(Event(event.pos, event.ev, data, event.problem, event.raw))
    return out


def _valid_only(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """A reader of a buffer takes no more than is valid."""
    valid: dict[str, int] = {}
    out = []
    for event in events:
        if event.ev == "buffer":
            name = str(event["name"])
            if event["op"] == "write" and "valid" in event:
                valid[name] = event["valid"]
            elif "extent" in event and name in valid:
                extent = min(event["extent"], valid[name])
                event = Event(event.pos, event.ev, {**event.data, "extent": extent})
        out.append(event)
    return out


def _copied_on_write(finding: Finding, events: Sequence[Event], fault: Arm) -> list[Event]:
    """The writer writes into a block of its own."""
    places = _Places(events)
    names: dict[int, int] = {}
    out = []
    for event in events:
        data = dict(event.data)
        group = places.fold.group(event.get("group"))
        if event.pos == finding.use and group is not None:
            for block in finding.blocks:
                got = places.fresh(group.pool.name, 1)
                if got and block in event["blocks"]:
                    names[block] = got[0]
                    out.append(_event(event, "alloc", req=event.req, group=group.name, blocks=got,
                                      actor="sched"))  # fmt: skip
                    out.append(_event(event, "copy", req=event.req, group=group.name, src=[block],
                                      dst=got))  # fmt: skip
        if names and event.req == finding.request and event.ev in _ACCESSING and group is not None:
            if finding.use is not None and event.pos >= finding.use:
                data["blocks"] = [names.get(b, b) for b in data["blocks"]]
        out.append(Event(event.pos, event.ev, data, event.problem, event.raw))
    return out


_RECOMPUTE = "the tokens are computed again before they are read"

_RECOVERIES: dict[str, Recovery] = {
    **{code: Recovery(_RECOMPUTE, _recomputed) for code in (
        "HKV101", "HKV102", "HKV301", "HKV302", "HKV601", "HKV602", "HKV603", "HKV701")},
    "HKV103": Recovery("the reader computes what was promised and never written", _recomputed),
    "HKV104": Recovery("unequal inputs do not share a hash: the reader misses", _recomputed),
    "HKV105": Recovery("the stale hash is not hit: the reader misses", _recomputed),
    "HKV303": Recovery("the window is computed again before it is read", _recomputed),
    "HKV304": Recovery("the index rows are built again before they are read", _recomputed),
    "HKV305": Recovery("the reader waits: what is loaded is there before it is read", _recomputed),
    "HKV306": Recovery("the state is computed again from the last one", _recomputed),
    "HKV307": Recovery("the component moves too", _moved_too),
    "HKV404": Recovery("pages are as large as their entries", _with_room),
    "HKV604": Recovery("the block is cleared before its new form is written", _zeroed),
    "HKV605": Recovery("what did not arrive is computed again", _recomputed),
    "HKV704": Recovery("the blocks stay with whom they were promised to", _kept_back),
    "HKV706": Recovery("no more is read than is valid", _valid_only),
    "HKV707": Recovery("the current map says where the block is", _by_the_map),
    "HKV708": Recovery("the block is copied before it is written", _copied_on_write),
    "HKV804": Recovery("the memory stays until its users are done", _stays),
    "HKV802": Recovery("padding rows use a cleared null block", _padding_apart),
}  # fmt: skip
