"""Loads of any connector, as far as the engine itself knows of them.

A connector says how many tokens it has, and the engine gives blocks for them; how they are filled
only the connector knows. One that loads meanwhile has begun when the blocks are there, and has
ended when the engine is told so. One that loads within a step is called before the step runs, and
has filled them before the step reads: what comes layer by layer the engine waits for where it needs
it, and what a worker clears comes before. Connectors that tell of their transfers in detail
(`transfer_hooks`) are left to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hkvtool.recorder.vllm.hooks import Hooks

LOADS = "hkvtool_loads"
"""Attribute by which the loads of a step travel to the worker."""

_IN_DETAIL = "OffloadingConnector"

_LOADING = "WAITING_FOR_REMOTE_KVS"


class Promised(NamedTuple):
    """Tokens of a request that a connector has said it has."""

    req: str
    start: int
    end: int
    managers: Any


class Loads:
    """The loads of one attachment that are promised or under way."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.promised: list[Promised] = []
        self._under_way: dict[str, list[tuple[str, list[int]]]] = {}
        """Handles and blocks by request."""
        self._number = 0
        self.within: list[dict[str, Any]] = []
        """In the worker: loads of the step at hand that have begun."""
        self.watched = False
        """Whether it is seen that the connector has been called for them."""

    def begin(self, scheduler: Any, out: Any) -> None:
        """A step has been planned: tell what is promised, or have its worker tell it."""
        promised, self.promised = self.promised, []
        if _in_detail(getattr(scheduler, "connector", None)):
            return
        within: list[dict[str, Any]] = []
        for one in promised:
            events = self._events(one)
            request = scheduler.requests.get(one.req)
            if one.req in out.num_scheduled_tokens:
                within += events
            elif request is not None and request.status.name == _LOADING:
                self._under_way[one.req] = [(e["handle"], e["blocks"]) for e in events]
                for event in events:
                    self._hooks.tell.event(event)
        if within:
            setattr(out, LOADS, within)

    def end(self, scheduler: Any, req: str, bad: set[int]) -> None:
        """The engine learns that a load is over. Where it failed, the request goes on from what
        is there all the same."""
        failed = req in getattr(scheduler, "failed_recving_kv_req_ids", ())
        handles = self._under_way.pop(req, ())
        for handle, blocks in handles:
            event: dict[str, Any] = {"ev": "load_end", "handle": handle}
            if failed:
                event["ok"] = False
                event["failed"] = [b for b in blocks if b in bad] or blocks
            self._hooks.tell.event(event)
        if failed and handles:
            managers = scheduler.kv_cache_manager.coordinator.single_type_managers
            at = scheduler.requests[req].num_computed_tokens
            blocks_of = {group: held for group, held, _ in self._held(managers, req, 0, at)}
            route = dict.fromkeys(blocks_of, "reuse")
            self._hooks.tell.event(
                {"ev": "resume", "req": req, "at": at, "blocks": blocks_of, "route": route}
            )  # fmt: skip

    def _events(self, load: Promised) -> list[dict[str, Any]]:
        """A `load_begin` for each group that gets blocks."""
        self._number += 1
        return [
            {
                "ev": "load_begin", "handle": f"{load.req}.{self._number}.{group}",
                "group": group, "blocks": blocks, "req": load.req, **keys,
            }
            for group, blocks, keys in self._held(load.managers, load.req, load.start, load.end)
        ]  # fmt: skip

    def _held(
        self, managers: Any, req: str, start: int, end: int
    ) -> Iterator[tuple[str, list[int], dict[str, Any]]]:
        """What a request has for some tokens in each group: its name, the blocks, and `tokens`
        where the blocks hold such."""
        for one in managers:
            known, number = self._hooks.pool(one.block_pool), one.kv_cache_group_id
            if number not in known.reusable:
                continue
            unit = known.units[number]
            first = start // unit
            held = list(enumerate(one.req_to_blocks.get(req, ())))[first : -(-end // unit)]
            real = [(i, b.block_id) for i, b in held if not b.is_null]
            if real:
                tokens = {"tokens": [max(start, real[0][0] * unit), end]}
                keys = {} if number in known.recurrent else tokens
                yield known.group(number), [b for _, b in real], keys


def tell_within(hooks: Hooks, step: int, out: Any, lane: str) -> None:
    """In the worker: the loads of a step begin."""
    hooks.loads.within = [
        {**event, "step": step, "actor": lane} for event in getattr(out, LOADS, ())
    ]
    for event in hooks.loads.within:
        hooks.tell.event(event)


def end_within(hooks: Hooks, *, ok: bool = True) -> int | None:
    """In the worker: they are over, before their step reads; says which step that is. Where the
    connector raised there is no saying which of them came."""
    step = None
    within, hooks.loads.within = hooks.loads.within, []
    for event in within:
        step = event["step"]
        end = {"ev": "load_end", "handle": event["handle"], "actor": event["actor"]}
        if not ok:
            end |= {"ok": False, "failed": event["blocks"]}
        hooks.tell.event(end)
    return step


class Called(AbstractContextManager[Any]):
    """The connector around a step: where it is entered the step's loads are over, or it raises."""

    def __init__(self, hooks: Hooks, inner: Any, then: Callable[[Hooks, int], None]) -> None:
        self._hooks, self._inner, self._then = hooks, inner, then

    def __enter__(self) -> Any:
        try:
            found = self._inner.__enter__()
        except BaseException:
            self._over(ok=False)
            raise
        self._over(ok=True)
        return found

    def __exit__(self, *raised: Any) -> Any:
        return self._inner.__exit__(*raised)

    def _over(self, *, ok: bool) -> None:
        try:
            step = end_within(self._hooks, ok=ok)
            if step is not None and ok:
                self._then(self._hooks, step)
        except Exception as e:
            self._hooks.fail("loads begun", e)


def loads_done(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The scheduler is told which loads are over."""

    def wrapper(self: Any, kv_connector_output: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bad = set(getattr(kv_connector_output, "invalid_block_ids", None) or ())
            for req in kv_connector_output.finished_recving or ():
                hooks.loads.end(self, req, bad)
        except Exception as e:
            hooks.fail("loads done", e)
        return original(self, kv_connector_output, *args, **kwargs)

    return wrapper


def unseen(scheduler: Any) -> list[str]:
    """What of this engine no hook sees, in words."""
    found: list[str] = []
    names = [type(c).__name__ for c in _parts(getattr(scheduler, "connector", None))]
    others = [name for name in names if name != _IN_DETAIL and name != "HkvRecorder"]
    if others:
        named = ", ".join(others)
        if len(others) < len(names) and _IN_DETAIL in names:
            found.append(f"what {named} loads, stores and sends")
        else:
            found.append(f"what {named} stores and sends, and the parts in which it loads")
    config = getattr(scheduler, "vllm_config", None)
    if getattr(config, "use_v2_model_runner", False):
        found.append("the V2 model runner at work, on whose source its hooks rely")
    compiled = getattr(config, "compilation_config", None)
    mode = getattr(getattr(compiled, "cudagraph_mode", None), "name", "NONE")
    if mode != "NONE":
        found.append(f"captured graphs ({mode}), which rules 801 to 803 are about")
    return found


def _parts(connector: Any) -> list[Any]:
    """A connector, or those that one is made of."""
    if connector is None:
        return []
    return list(getattr(connector, "_connectors", None) or [connector])


def _in_detail(connector: Any) -> bool:
    return any(type(c).__name__ == _IN_DETAIL for c in _parts(connector))
