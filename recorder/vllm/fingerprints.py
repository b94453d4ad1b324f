"""Fingerprints of an engine's own blocks: when they are written, stored, loaded and resumed from.

The scheduler says what is published, the worker reads it, in the order of its compute stream:
before a step what the step resumes from, behind it what it has completed. Equal content has equal
fingerprints; where they differ something wrote behind the engine's back, or a transfer did not
bring what it should (HKV906).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hkvtool.recorder.vllm.fingerprint_choice import Choice, ChoiceError
from hkvtool.recorder.vllm.fingerprint_pages import Pages
from hkvtool.recorder.vllm.fingerprint_plan import PLAN, Plan, Read, plan
from hkvtool.recorder.vllm.scheduler_hooks import STEP
from hkvtool.recorder.vllm.worker_hooks import DEVICE, rank_of

if TYPE_CHECKING:
    from hkvtool.recorder.vllm.hooks import Hooks

log = logging.getLogger("hkvtool.vllm")

EVIDENCE = "bytes"


class Fingerprints:
    """What is to be read, on the scheduler's side; what was read and stored, on the worker's. Both
    may be in one process."""

    def __init__(self, hooks: Hooks, choice: Choice) -> None:
        self.hooks = hooks
        self.choice = choice
        self.wanted: set[str] = set()
        """Requests that somebody looks for."""
        self._new: list[str] = []
        """Those of them that the worker has not heard of."""
        self._pages: Pages | None = None
        self._part = ""
        """What this worker has of each block, where others have the rest."""
        self._said = False
        self._step: int | None = None
        self._read: set[int] = set()
        """Blocks whose content was read since they were given to somebody."""
        self._far: set[int] = set()
        """Places of the lower tier whose content was fingerprinted as it was stored."""
        self._loads: dict[str, tuple[str, str, int, list[int]]] = {}

    # --- the scheduler's side ----------------------------------------------------------------

    def look_for(self, req: str) -> None:
        """Whatever this request goes on from or completes is to be read."""
        self.wanted.add(req)
        self._new.append(req)

    def planned(self, scheduler: Any, out: Any) -> None:
        """A step is handed out, and told of. Raises nothing."""
        _safely(self.hooks, "step planned", self._plan, scheduler, out)

    def _plan(self, scheduler: Any, out: Any) -> None:
        state = self.hooks.pool(scheduler.kv_cache_manager.block_pool)
        made = plan(scheduler, out, state, self._wants)
        made.wanted, self._new = self._new, []
        self._forget(out)
        if not made.empty:
            setattr(out, PLAN, made)

    def _wants(self, name: bytes, req: str) -> bool:
        return req in self.wanted or self.choice.samples(name)

    def _forget(self, out: Any) -> None:
        self.wanted.difference_update(out.finished_req_ids)

    # --- the worker's side -------------------------------------------------------------------

    def before(self, runner: Any, out: Any) -> None:
        """What a step resumes from, before anything of it runs."""
        self._forget(out)
        self._step = getattr(out, STEP, None)
        if self._pages is None:
            if self._step is None:
                self._apart(out)
                return
            self._pages = Pages(runner)
            rank = rank_of(runner)
            if rank:
                # Its share of the same blocks, on a device of its own.
                self._part = f"rank{rank}"
            else:
                self.hooks.sees(EVIDENCE)
        for new in out.scheduled_new_reqs:
            self._given(new.block_ids)
        for fresh in out.scheduled_cached_reqs.new_block_ids:
            self._given(fresh or ())
        made: Plan | None = getattr(out, PLAN, None)
        if made is not None:
            self.wanted.update(made.wanted)
            self._take(made.before, "resume")

    def after(self, out: Any) -> None:
        """What was loaded within the step, and what it completed and the engine has published."""
        made: Plan | None = getattr(out, PLAN, None)
        if made is not None:
            self._take(made.loaded, "load")
            self._take(made.behind, "publish")

    def _apart(self, out: Any) -> None:
        """Say once that this worker does not hear what is published."""
        if not self._said and out.total_num_scheduled_tokens:
            self._said = True
            log.warning(
                "nothing is fingerprinted: what reaches this worker does not say what is published"
            )

    def _given(self, tables: Iterable[Iterable[int]]) -> None:
        for ids in tables:
            self._read.difference_update(ids)

    def _take(self, reads: Iterable[Read], at: str) -> None:
        for one in reads:
            self._tell(one.group, one.number, one.blocks, at, one.req, self._step)
            self._read.update(one.blocks)

    def _tell(
        self, group: str, number: int, blocks: list[int], at: str, req: str | None,
        step: int | None,
    ) -> None:  # fmt: skip
        if self._pages is None:
            return
        event: dict[str, Any] = {
            "ev": "fingerprint", "group": group, "blocks": blocks,
            "values": self._pages.values(number, blocks), "at": at, "actor": DEVICE,
        }  # fmt: skip
        if self._part:
            # It keeps no time with the first, and counts as of that one's moment.
            event |= {"actor": f"{DEVICE}@{self._part}", "part": self._part, "beside": DEVICE}
        if req is not None:
            event["req"] = req
        if step is not None:
            event["step"] = step
        self.hooks.tell.event(event)

    # --- transfers ---------------------------------------------------------------------------

    def transfer_begun(
        self, kind: str, handle: str, group: tuple[str, int], blocks: list[int], far: list[int],
        req: str | None,
    ) -> None:  # fmt: skip
        """A store reads these blocks now; a load will have filled them when it ends."""
        if self._pages is None:
            return
        wanted = req is not None and req in self.wanted
        if kind == "load":
            self._read.difference_update(blocks)
            known = [
                block
                for block, place in zip(blocks, far, strict=False)
                if wanted or self.choice.rate >= 1 or place in self._far
            ]
            self._loads[handle] = req or "", *group, known
            return
        chosen = [b for b in blocks if wanted or b in self._read]
        kept = set(chosen)
        for block, place in zip(blocks, far, strict=False):
            if block in kept:
                self._far.add(place)
            else:
                self._far.discard(place)
        if chosen:
            self._tell(*group, chosen, "store", req, self.hooks.worker_step)

    def transfer_ended(self, handle: str, ok: bool) -> None:
        """What a load has brought, as the engine is told that it is there."""
        found = self._loads.pop(handle, None)
        if found is not None and ok and found[3]:
            req, group, number, blocks = found
            self._tell(group, number, blocks, "load", req or None, self.hooks.worker_step)


def _asked(hooks: Hooks) -> Fingerprints | None:
    """Those of this attachment, where they are asked for."""
    if hooks.prints is None:
        try:
            choice = Choice.of_environment()
        except ChoiceError as e:
            log.warning("nothing is fingerprinted: %s", e)
            choice = Choice()
        hooks.prints = Fingerprints(hooks, choice) if choice.any else False
    return hooks.prints or None


def stepped(name: str) -> Callable[[Hooks, Any], Callable[..., Any]]:
    """A worker runs a step."""

    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        prints = _asked(hooks)

        def wrapper(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            if prints is None:
                return original(self, scheduler_output, *args, **kwargs)
            _safely(hooks, name, prints.before, self, scheduler_output)
            result = original(self, scheduler_output, *args, **kwargs)
            _safely(hooks, name, prints.after, scheduler_output)
            return result

        return wrapper

    return make


def request_added(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A request comes: is it one of those looked for?"""
    prints = _asked(hooks)

    def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if prints is not None and prints.choice.targeted:
            _safely(hooks, "request added", _look, prints, request)
        return original(self, request, *args, **kwargs)

    return wrapper


def _look(prints: Fingerprints, request: Any) -> None:
    own = str(request.request_id)
    ids = [own, str(getattr(request, "hkvtool_external", None) or own)]
    adapter = getattr(getattr(request, "lora_request", None), "lora_name", None)
    tenants = [str(t) for t in (getattr(request, "cache_salt", None), adapter) if t]
    if prints.choice.wants(ids, tenants, request.prompt_token_ids or ()):
        prints.look_for(own)


def _safely(hooks: Hooks, name: str, then: Callable[..., None], *args: Any) -> None:
    """What goes wrong takes the hook off, with the evidence that it gave, and not the engine."""
    try:
        then(*args)
    except Exception as e:
        hooks.prints = False
        hooks.evidence = [c for c in hooks.evidence if c != EVIDENCE]
        hooks.fail(name, e)
