"""What recording and guarding cost a real vLLM: off, on, and with vLLM's own KV events on, in turn.

Runs in the engine's environment, where hkvtool needs nothing but itself::

    python -m hkvtool.bench.vllm_cost scheduler|engine ROUNDS

and prints one JSON object. `scheduler` is vLLM's scheduler and cache manager without any model
time, `engine` the whole engine with a tiny random model on the CPU.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time_ns
from typing import Any

GUARDS = {"guard log": "log", "guard raise": "raise"}
"""Recorded and guarded; what a process beside takes is not the engine's, and not counted."""

ARMS = ("off", "recording", *GUARDS, "kv events")

_RING = 16 << 20
_SHORT = 5
"""Rounds of the whole engine, which are short, for one of the scheduler: what else the machine
does falls on few of them."""

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_PLUGINS": "",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip
"""One process, one thread, no network, and no hooks but those that are put on here."""

_BREAK_AT_IMPORT = ("torchvision", "torchaudio", "torchcodec")
"""Builds for another torch that vLLM brings along and does not need here."""

Count = dict[str, float]
"""`steps`, and where it was recorded `events` and `bytes`."""


@contextmanager
def recorded(
    folder: Path, arm: str, engine: Any = None, first: Callable[[], object] = int
) -> Iterator[Count]:
    """The hooks on, recording to a ring; what was told is counted at the end. Where an `engine` is
    there already, `first` is done under the hooks and not counted: functions that have just been
    put in place of others are slow for a while."""
    from hkvtool.recorder.environment import GUARD
    from hkvtool.recorder.guarded import Followed, guarding
    from hkvtool.recorder.recording import Recording
    from hkvtool.recorder.vllm.attach import attach
    from hkvtool.recorder.vllm.late import take_over

    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = Recording.start(f"{place}/t.hkv", ring_bytes=_RING, max_bytes=_RING + (1 << 20))
        if not isinstance(made, Recording):
            raise made.error()
        # One thread tells everything, and its ring is made first.
        ring = made._rings[0]
        os.environ[GUARD] = GUARDS.get(arm, "off")
        told = guarding(made)
        hooks = attach(told.emit_dict, told.emitter, name_of=told.keyed)
        counted: Count = {}
        try:
            if engine is not None:
                take_over(hooks, engine)
            first()
            if isinstance(told, Followed):
                # That another interpreter starts is no step's cost.
                told.wait()
            before = ring.next_seq, ring.written
            yield counted
        finally:
            hooks.remove()
            counted["events"] = ring.next_seq - before[0]
            counted["bytes"] = ring.written - before[1]
            told.close()
        if hooks.failed:
            raise RuntimeError(f"hooks failed: {hooks.failed}")


def scheduler_load(folder: Path) -> Callable[[str], tuple[int, Count]]:
    """A load for the scheduler alone, 16 requests at a time, half of each prompt shared; takes an
    arm, returns CPU nanoseconds."""
    from hkvtool.bench.vllm_loop import Drive, gemma_like, make_request, make_scheduler

    def drive(events: bool) -> tuple[int, int]:
        made = make_scheduler(
            folder, gemma_like(), blocks=2500, budget=1024, seqs=16, length=1024, events=events
        )
        chance = random.Random(1)
        shared = [chance.randrange(3, 250) for _ in range(200)]
        for i in range(64):
            prompt = shared + [chance.randrange(3, 250) for _ in range(200)]
            request = make_request(made.scheduler, f"cmpl-{i:032x}-0", prompt, 200)
            made.scheduler.add_request(request)
        steps = Drive(made.scheduler)
        gc.collect()
        begun = process_time_ns()
        while steps.busy:
            steps.step()
        return process_time_ns() - begun, steps.steps

    def run(arm: str) -> tuple[int, Count]:
        if arm in ("off", "kv events"):
            took, steps = drive(arm == "kv events")
            return took, {"steps": steps}
        with recorded(folder, arm) as counted:
            took, steps = drive(False)
        return took, {"steps": steps, **counted}

    return run


def engine_load(folder: Path) -> Callable[[str], tuple[int, Count]]:
    """The same for a whole engine: four requests of 100 tokens that generate 40. There is one
    engine, whose KV events are switched on and off, since two of them differ by more than that."""
    from vllm import LLM, SamplingParams
    from vllm.config import KVEventsConfig

    from hkvtool.bench.vllm_loop import TINY
    from hkvtool.recorder.vllm.late import running

    (folder / "config.json").write_text(json.dumps(TINY))
    llm = LLM(
        model=str(folder), load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
        enable_prefix_caching=True, max_num_seqs=4, seed=0, dtype="float32", max_model_len=512,
        max_num_batched_tokens=512, block_size=32, num_gpu_blocks_override=256,
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
    )  # fmt: skip
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    engine = running()
    pool, plan = scheduler.kv_cache_manager.block_pool, type(scheduler).schedule
    number = 0

    def once(tokens: int) -> tuple[int, int]:
        nonlocal number
        number += 1
        prompts = [
            {"prompt_token_ids": [(i * k + number) % 240 + 5 for i in range(100)]}
            for k in (3, 5, 7, 11)
        ]
        params = SamplingParams(
            max_tokens=tokens, temperature=0.0, ignore_eos=True, detokenize=False
        )
        steps = 0
        told = type(scheduler).schedule

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            return told(scheduler, *args, **kwargs)

        scheduler.schedule = counted
        gc.collect()
        begun = process_time_ns()
        llm.generate(prompts, params, use_tqdm=False)
        took = process_time_ns() - begun
        del scheduler.schedule
        return took, steps

    def run(arm: str) -> tuple[int, Count]:
        pool.enable_kv_cache_events = arm == "kv events"
        if arm in ("off", "kv events"):
            assert type(scheduler).schedule is plan
            once(8)
            took, steps = once(40)
            return took, {"steps": steps}
        with recorded(folder, arm, engine, lambda: once(8)) as counted:
            took, steps = once(40)
        return took, {"steps": steps, **counted}

    return run


LOADS = {"scheduler": scheduler_load, "engine": engine_load}


def measure(load: str, rounds: int) -> dict[str, Any]:
    """The arms in turn, in an order that chance chooses, and what each step took more than off in
    the same round: the median, and where nine in ten medians of resampled rounds lie."""
    took: dict[str, list[float]] = {arm: [] for arm in ARMS}
    counted: Count = {}
    chance = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as place:
        run = LOADS[load](Path(place))
        gc.collect()
        # As vLLM does once it has started: else a full collection now and then is all there is.
        gc.freeze()
        if load == "engine":
            rounds *= _SHORT
        for number in range(rounds + 1):
            for arm in chance.sample(ARMS, len(ARMS)):
                nanoseconds, found = run(arm)
                if number:
                    took[arm].append(nanoseconds / found["steps"] / 1000)
                if arm == "recording":
                    counted = found
    off = statistics.median(took["off"])
    told: dict[str, Any] = {"load": load, "rounds": rounds, "steps": int(counted["steps"])}
    told["events_a_step"] = counted["events"] / counted["steps"]
    told["ring_bytes"] = counted["bytes"] / counted["events"]
    for arm in ARMS:
        more = [a - b for a, b in zip(took[arm], took["off"], strict=True)]
        low, high = interval(more)
        told[arm] = {
            "us_a_step": statistics.median(took[arm]), "more_us": statistics.median(more),
            "more_low": low, "more_high": high, "share": statistics.median(more) / off,
        }  # fmt: skip
    told["ns_an_event"] = 1000 * told["recording"]["more_us"] / told["events_a_step"]
    return told


def interval(values: list[float]) -> tuple[float, float]:
    """Where nine in ten medians of resampled values lie."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2000))
    return medians[100], medians[-101]


def main(load: str, rounds: str) -> None:
    os.environ.update(_ENVIRONMENT)
    for name in _BREAK_AT_IMPORT:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    # What the engine prints on the way is talk.
    out = os.dup(1)
    os.dup2(2, 1)
    found = measure(load, int(rounds))
    os.write(out, json.dumps(found).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
