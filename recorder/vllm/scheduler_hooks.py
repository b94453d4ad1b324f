"""Hooks on the scheduler: steps handed out and ended, and the life of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hkvtool.recorder.vllm.caller import COPY_OWNER, DEFERRED_OWNER
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.load_hooks import unseen

STEP = "hkvtool_step"
"""Attribute by which a step's number travels to the worker and back."""

IDLE_TOLD = 16
"""Steps without any work that are told of a run of them."""

APPEND, REPLACE = 0, 1
"""How a request's part of `tables` changes its block tables in the worker."""


def schedule(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """`dispatch`, with what the worker is told: block-table changes and lengths."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if hooks.rounds is not None:
            try:
                hooks.rounds.step(self)
            except Exception as e:
                hooks.rounds = None
                hooks.fail("rounds", e)
        out = original(self, *args, **kwargs)
        try:
            _tell_step(hooks, self, out)
        except Exception as e:
            hooks.fail("dispatch", e)
        if hooks.prints:
            hooks.prints.planned(self, out)
        return out

    return wrapper


def _tell_step(hooks: Hooks, scheduler: Any, out: Any) -> None:
    hooks.settle()
    lookup, hooks.waiting = hooks.waiting, None
    if lookup is not None and lookup.req not in hooks.refused:
        hooks.refused.add(lookup.req)
        _refuse(hooks, scheduler, lookup.req, "no room")
    if not hooks.steps:
        _tell_unseen(hooks, scheduler)
    if hooks.loads.promised:
        hooks.loads.begin(scheduler, out)
    counts = out.num_scheduled_tokens
    zeroed = getattr(out, "new_block_ids_to_zero", None)
    copies = getattr(out, "kv_cache_block_copies", None)
    if not counts and not zeroed and not copies:
        if not scheduler.running and scheduler.requests:
            _tell_idle(hooks, scheduler, out)
        return
    hooks.idle = 0
    step = hooks.next_step()
    setattr(out, STEP, step)
    first = hooks.pool(scheduler.kv_cache_manager.block_pool).first_table
    if not zeroed and not copies and _goes_on(hooks, out):
        hooks.tell.dispatch(step, None, None, None, _grown(out, first), None, None)
        return
    for new in out.scheduled_new_reqs:
        _admit(hooks, scheduler, new.req_id)
    cached = out.scheduled_cached_reqs
    resumed = _resumed(cached)
    for req in cached.req_ids:
        if req in resumed:
            _admit(hooks, scheduler, req)
    anew = _untold(hooks, scheduler, cached.req_ids) if hooks.untold else {}
    reqs, starts, tables = tables_of(out, first, anew)
    told = list(counts.values())
    hooks.batch = reqs, [start + count for start, count in zip(starts, told, strict=True)]
    ends = [end for c in copies or () for end in (c.src_block_id, c.dst_block_id)]
    hooks.tell.dispatch(
        step, reqs, starts, told, tables or None, list(zeroed) if zeroed else None, ends or None
    )


def _tell_unseen(hooks: Hooks, scheduler: Any) -> None:
    """Before the first step: what of this engine is not told."""
    found = unseen(scheduler)
    if found:
        note = "not seen: " + "; ".join(found)
        hooks.tell.event({"ev": "evidence", "evidence": list(hooks.evidence), "note": note})


def _goes_on(hooks: Hooks, out: Any) -> bool:
    """Whether the step runs the requests of the one before, a token each from where they were: the
    most common one of all, which names nobody."""
    cached = out.scheduled_cached_reqs
    reqs, starts = hooks.batch
    if (
        out.scheduled_new_reqs
        or out.total_num_scheduled_tokens != len(reqs)
        or cached.num_computed_tokens != starts
        or cached.req_ids != reqs
        or hooks.untold
        or _resumed(cached)
    ):
        return False
    hooks.batch = reqs, [start + 1 for start in starts]
    return True


def _grown(out: Any, first: int) -> list[int] | None:
    """`tables` of a step whose requests are those of the one before."""
    tables: list[int] = []
    for i, fresh in enumerate(out.scheduled_cached_reqs.new_block_ids):
        if fresh is not None:
            _change(tables, first, i, APPEND, fresh)
    return tables or None


def _tell_idle(hooks: Hooks, scheduler: Any, out: Any) -> None:
    """Nothing runs and nothing was planned though requests are there: a stall has begun, or a load
    is on its way. An engine that is stuck plans on and on, so only the beginning is told."""
    hooks.idle += 1
    if hooks.idle > IDLE_TOLD:
        return
    for name, request in scheduler.requests.items():
        if request.status.name in ("WAITING", "PREEMPTED") and name not in hooks.refused:
            hooks.refused.add(name)
            _refuse(hooks, scheduler, name, "not planned")
    step = hooks.next_step()
    setattr(out, STEP, step)
    hooks.tell.event({"ev": "dispatch", "step": step, "reqs": []})


def _refuse(hooks: Hooks, scheduler: Any, req: str, reason: str) -> None:
    """A request has to wait; the pool's own count of free blocks goes with it, to be checked."""
    pool = scheduler.kv_cache_manager.block_pool
    hooks.tell.event(
        {"ev": "refuse", "req": req, "reason": reason, "pool": hooks.pool(pool).name,
         "free": pool.get_num_free_blocks()}
    )  # fmt: skip


Tables = Sequence[Sequence[int]]
"""The blocks of a request, table by table."""


def _untold(hooks: Hooks, scheduler: Any, reqs: Sequence[str]) -> dict[str, Tables]:
    """The whole tables of those of a step's requests of which a reader may not know them."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    mine = hooks.untold.intersection(reqs)
    hooks.untold = {r for r in hooks.untold - mine if r in scheduler.requests}
    return {
        req: [[b.block_id for b in one.req_to_blocks.get(req, ())] for one in managers]
        for req in mine
    }


def tables_of(
    out: Any, first: int, anew: Mapping[str, Tables]
) -> tuple[list[str], list[int], list[int]]:
    """The requests of a step, where each goes on, and `tables`: what changed in their block tables,
    the first of which is number `first`. Those of `anew` are told as a whole."""
    # In the order of scheduling: a request may go on from blocks that one before it in the very
    # same step is about to fill.
    reqs = list(out.num_scheduled_tokens)
    starts = [0] * len(reqs)
    place = {req: i for i, req in enumerate(reqs)}
    tables: list[int] = []
    for new in out.scheduled_new_reqs:
        i = place[new.req_id]
        _change(tables, first, i, REPLACE, new.block_ids)
        starts[i] = new.num_computed_tokens
    cached = out.scheduled_cached_reqs
    resumed = _resumed(cached)
    for req, fresh, start in zip(
        cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
    ):
        i = place[req]
        if req in anew:
            _change(tables, first, i, REPLACE, anew[req])
        elif req in resumed:
            _change(tables, first, i, REPLACE, fresh)
        elif fresh is not None:
            _change(tables, first, i, APPEND, fresh)
        starts[i] = start
    return reqs, starts, tables


def _resumed(cached: Any) -> Any:
    """Requests whose whole table is sent anew; before 0.11 a flag for each."""
    ids = getattr(cached, "resumed_req_ids", None)
    if ids is not None:
        return ids
    flags = getattr(cached, "resumed_from_preemption", ())
    return {req for req, flag in zip(cached.req_ids, flags, strict=False) if flag}


def _change(tables: list[int], first: int, index: int, how: int, groups: Any) -> None:
    """One request's change: its place in `reqs`, append or replace, the first table, how many, and
    of each its count and ids."""
    if groups is None:
        if how == APPEND:
            return
        groups = ()
    tables.append(index)
    tables.append(how)
    tables.append(first)
    tables.append(len(groups))
    for ids in groups:
        tables.append(len(ids))
        tables.extend(ids)


def _admit(hooks: Hooks, scheduler: Any, req: str) -> None:
    event: dict[str, Any] = {"ev": "admit", "req": req}
    request = scheduler.requests.get(req)
    if request is not None:
        external = getattr(request, "hkvtool_external", None)
        if external is not None:
            event["external"] = external
        trace = (getattr(request, "trace_headers", None) or {}).get("traceparent")
        if trace is not None:
            event["trace_id"] = trace
        salt = getattr(request, "cache_salt", None)
        if salt is not None:
            event["tenant"] = hooks.keyed.text(salt)
    hooks.tell.event(event)


def update(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """`retire`, then what the engine makes of the step's output; tokens rejected by speculation
    show only as a count that went down."""

    def wrapper(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        drafts: dict[str, int] = {}
        try:
            step = getattr(scheduler_output, STEP, None)
            if step is not None:
                hooks.tell.retire(step)
            for req in scheduler_output.scheduled_spec_decode_tokens:
                if req in self.requests:
                    drafts[req] = self.requests[req].num_computed_tokens
        except Exception as e:
            hooks.fail("retire", e)
        result = original(self, scheduler_output, *args, **kwargs)
        try:
            for req, before in drafts.items():
                request = self.requests.get(req)
                if request is not None and 0 < request.num_computed_tokens < before:
                    to = request.num_computed_tokens
                    hooks.tell.event({"ev": "rollback", "req": req, "to": to})
        except Exception as e:
            hooks.fail("retire", e)
        return result

    return wrapper


def preempt(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A running request is about to give all of its blocks back."""

    def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            hooks.tell.event({"ev": "preempt", "req": request.request_id})
        except Exception as e:
            hooks.fail("preempt", e)
        return original(self, request, *args, **kwargs)

    return wrapper


def free_request(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A request ends, before its blocks go."""

    def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            status = getattr(request.status, "name", str(request.status))
            hooks.refused.discard(request.request_id)
            if status in ("FINISHED_ABORTED", "FINISHED_ERROR"):
                event = {"ev": "abort", "req": request.request_id, "reason": status}
            else:
                event = {"ev": "finish", "req": request.request_id}
            hooks.tell.event(event)
        except Exception as e:
            hooks.fail("finish", e)
        return original(self, request, *args, **kwargs)

    return wrapper


def release_copies(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The ends of copies on write are let go of, at once or behind the step that copies."""

    def wrapper(self: Any, blocks: Any, *args: Any, **kwargs: Any) -> Any:
        before = len(self.deferred_frees)
        result = original(self, blocks, *args, **kwargs)
        try:
            if len(self.deferred_frees) > before:
                pool = hooks.pool(self.kv_cache_manager.block_pool).name
                ids = [b.block_id for b in blocks if not b.is_null]
                hooks.tell.touch(ids, None, None, pool, DEFERRED_OWNER)
                hooks.tell.free(ids, None, None, pool, COPY_OWNER, None)
        except Exception as e:
            hooks.fail("copy release", e)
        return result

    return wrapper


def request_made(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The id that the client knows, which only the message from the front end carries."""

    def wrapper(cls: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(cls, request, *args, **kwargs)
        try:
            made.hkvtool_external = getattr(request, "external_req_id", None)
        except Exception as e:
            hooks.fail("external id", e)
        return made

    return wrapper
