"""Recording vLLM by its public connector interface alone: nothing is wrapped or replaced.

``--kv-transfer-config '{"kv_connector": "HkvRecorder", "kv_role": "kv_producer",
"kv_connector_module_path": "hkvtool.recorder.vllm_connector"}'`` with HKV_RECORD set. It never
loads or stores anything. An engine that has a connector already takes it beside that one by its
`MultiConnector`.

A connector is told what each step runs, on which blocks, and how requests live. It is not told of
reference counts, of hashes that come and go, of blocks that a window leaves, or of when a freed
block is handed out again: the evidence is `step` and `layout`, never `host`, and rules that need
more come out as not evaluable. The hooks of `hkvtool.recorder.vllm` see all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from hkvtool.recorder.guard import GuardError
from hkvtool.recorder.session import follow, say
from hkvtool.recorder.tell import Tell
from hkvtool.recorder.vllm.declare import declare, engine_name
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.scheduler_hooks import tables_of

NAME = "HkvRecorder"

EVIDENCE = ("step", "layout")

NOT_SEEN = (
    "by the connector interface alone: references, evictions, hashes, blocks that a window leaves "
    "and deferred frees are not seen, nor when a step ends"
)


class Observer:
    """Turns what the scheduler tells a connector into events."""

    def __init__(self) -> None:
        self.manager: Any = None
        self.hooks: Hooks | None = None
        self.groups: list[str] = []
        self._hit: dict[str, int] = {}
        """Tokens that the engine's own cache had of each request that is being let in."""
        self._first = 0
        self._steps = 0
        self._told = False

    def start(self, recording: Any) -> None:
        """Events go there from now on."""
        hooks = Hooks(Tell(recording.emit_dict, recording.emitter), recording.keyed, NOT_SEEN)
        hooks.evidence = list(EVIDENCE)
        self.hooks, self._told = hooks, False

    def stop(self, recording: Any) -> None:
        """Nothing is told any more."""
        hooks, self.hooks = self.hooks, None
        if hooks is not None:
            hooks.remove()

    def bound(self, manager: Any) -> None:
        """The engine's cache manager is there."""
        self.manager = manager
        self.ready()

    def ready(self) -> Hooks | None:
        """What tells events, once pools and groups are declared; None where nothing is recorded."""
        hooks = self.hooks
        if hooks is None or self.manager is None:
            return None
        if not self._told:
            self._told = True
            hooks.begin(engine_name())
            declare(hooks, self.manager)
            state = hooks.pool(self.manager.block_pool)
            self.groups = [state.groups[n] for n in sorted(state.groups)]
            self._first = state.first_table
        return hooks

    # --- requests --------------------------------------------------------------------------

    def local_hit(self, request: Any, tokens: int) -> None:
        """The engine's own cache has so many of a request's tokens."""
        self._hit[request.request_id] = int(tokens)

    def allocated(self, request: Any, blocks: Any) -> None:
        """A request is let in: what it asked for, what was found of it, and where it goes on."""
        hooks = self.ready()
        req = request.request_id
        hit = self._hit.pop(req, None)
        if hooks is None or hit is None:
            return
        hooks.tell.event({
            "ev": "lookup", "req": req, "tokens": int(request.num_tokens),
            "hit": dict.fromkeys(self.groups, hit),
        })  # fmt: skip
        hooks.tell.event({"ev": "admit", "req": req})
        if hit:
            # Without its blocks: which of those listed were found, and which are new, is not said.
            hooks.tell.event({"ev": "resume", "req": req, "at": hit})

    def finished(self, request: Any) -> None:
        """A request is over."""
        hooks = self.ready()
        if hooks is not None:
            status = getattr(getattr(request, "status", None), "name", "")
            how = "abort" if status in ("FINISHED_ABORTED", "FINISHED_ERROR") else "finish"
            hooks.tell.event({"ev": how, "req": request.request_id})

    # --- steps -----------------------------------------------------------------------------

    def step(self, out: Any) -> None:
        """A step is handed out, with what its worker is told."""
        hooks = self.ready()
        if hooks is None:
            return
        for req in sorted(getattr(out, "preempted_req_ids", None) or ()):
            hooks.tell.event({"ev": "preempt", "req": req})
        if not out.num_scheduled_tokens:
            return
        self._steps += 1
        reqs, starts, tables = tables_of(out, self._first, {})
        zeroed = getattr(out, "new_block_ids_to_zero", None)
        copies = getattr(out, "kv_cache_block_copies", None)
        ends = [end for c in copies or () for end in (c.src_block_id, c.dst_block_id)]
        hooks.tell.dispatch(
            self._steps, reqs, starts, list(out.num_scheduled_tokens.values()), tables or None,
            list(zeroed) if zeroed else None, ends or None,
        )  # fmt: skip


def _methods(base: Any, metadata: Any, scheduler: Any) -> Mapping[str, Any]:
    """What a connector must have, around an `Observer` in the scheduler."""

    def create(self: Any, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        base.__init__(self, vllm_config, role, kv_cache_config)
        self.observer = Observer() if role is scheduler else None
        if self.observer is not None:
            follow(self.observer.start, self.observer.stop)

    def bind(self: Any, kv_cache_manager: Any) -> None:
        base.bind_kv_cache_manager(self, kv_cache_manager)
        _safely(self, "bound", kv_cache_manager)

    def matched(self: Any, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        _safely(self, "local_hit", request, num_computed_tokens)
        return 0, False

    def allocated(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> None:
        _safely(self, "allocated", request, blocks)

    def build(self: Any, scheduler_output: Any) -> Any:
        _safely(self, "step", scheduler_output)
        return metadata()

    def finished(self: Any, request: Any, block_ids: Any) -> tuple[bool, None]:
        _safely(self, "finished", request)
        return False, None

    def nothing(self: Any, *args: Any, **kwargs: Any) -> None:
        """It neither loads nor saves."""

    return {
        "__init__": create,
        # A recorder hands nothing on: its requests may be preempted as any other.
        "requires_kv_delivery": property(lambda self: False),
        "bind_kv_cache_manager": bind,
        "get_num_new_matched_tokens": matched,
        "update_state_after_alloc": allocated,
        "build_connector_meta": build,
        "request_finished": finished,
        "request_finished_all_groups": finished,
        **dict.fromkeys(
            ("start_load_kv", "wait_for_layer_load", "save_kv_layer", "wait_for_save"), nothing
        ),
    }


def _safely(connector: Any, what: str, *args: Any) -> None:
    """Tell the observer; one that fails is let go, and the engine goes on."""
    observer = connector.observer
    if observer is None:
        return
    try:
        getattr(observer, what)(*args)
    except GuardError:
        raise
    except Exception as e:
        connector.observer = None
        say(f"the recorder's connector failed and is off: {type(e).__name__}: {e}")
        hooks = observer.hooks
        if hooks is not None:
            note = f"the connector failed: {type(e).__name__}: {e}"
            hooks.tell.event({"ev": "evidence", "evidence": [], "note": note})


def __getattr__(name: str) -> Any:
    """The connector's class, made when the engine asks for it: only then is there an engine."""
    if name != NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    v1 = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
    metadata = type("HkvMetadata", (v1.KVConnectorMetadata,), {"__module__": __name__})
    base = v1.KVConnectorBase_V1
    methods = _methods(base, metadata, v1.KVConnectorRole.SCHEDULER)
    found = type(NAME, (base, v1.SupportsHMA), {**methods, "__module__": __name__})
    globals().update({NAME: found, "HkvMetadata": metadata})
    return found
