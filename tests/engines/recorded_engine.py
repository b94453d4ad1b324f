"""Runs one tiny engine under the hooks and writes down what a test wants to know of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import engines.conftest  # noqa: F401  the environment of an engine
from engines.engine_state import Folded, differences
from engines.views import lies, states, views
from engines.vllm_engine import core_of, generate, make_engine
from hkvtool.recorder.vllm.attach import attach


def main(folder: str, model: str, out: str, *how: str) -> None:
    folded = Folded()
    hooks = None if "bare" in how else attach(folded)
    llm = make_engine(Path(folder), model)
    core = core_of(llm)
    found: list[str] = []
    steps = 0
    if hooks is not None:
        plan = core.scheduler.schedule

        def schedule(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            found.extend(differences(folded, hooks, core.scheduler))
            return plan(*args, **kwargs)

        core.scheduler.schedule = schedule
    told: dict[str, Any] = {"outputs": load(llm, model), "steps": steps, "differences": found[:20]}
    if hooks is not None:
        found.extend(differences(folded, hooks, core.scheduler))
        layers, wrong = compare_views(core, folded.events)
        told |= {
            "failed": hooks.failed, "lost": hooks.lost, "events": folded.events, "layers": layers,
            "views": wrong, "steps": steps,
        }  # fmt: skip
    Path(out).write_text(json.dumps(told))


def load(llm: Any, model: str) -> list[tuple[list[int], int]]:
    """The same prompt twice, longer ones that share its beginning, then too much at once."""
    long = 900 if model in ("qwen3next", "deepseek4") else 200
    first = [(i * 7) % 200 + 5 for i in range(long)]
    done = (
        generate(llm, [first])
        + generate(llm, [first])
        + generate(llm, [first[: long - 20] + [9] * 64])
    )
    many = [[(i * k) % 199 + 3 for i in range(long + 100)] for k in (3, 5, 11, 13, 17, 19)]
    return done + generate(llm, many, 24) + generate(llm, [first])


def compare_views(core: Any, events: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Layers seen, and those whose caches lie elsewhere than the trace says."""
    mine = views(events)
    layout = {
        layer: e["layout"] for e in events if e["ev"] == "group" for run in e["layout"].get("stretches", ())
        for layer in run["layers"]
    }  # fmt: skip
    wrong: list[str] = []
    bases: set[int] = set()
    seen = 0
    for layer, module in core.vllm_config.compilation_config.static_forward_context.items():
        held = getattr(module, "kv_cache", None)
        tensors = list(held) if isinstance(held, (tuple, list)) else [held]
        tensors = [t for t in tensors if t is not None and t.numel()]
        if not tensors or layer not in mine:
            continue
        seen += 1
        bases.update(t.untyped_storage().data_ptr() for t in tensors)
        made = (
            [mine[layer]] if "states" not in layout[layer] else states(mine[layer], layout[layer])
        )
        told, true = [lies(t) for t in made], [lies(t) for t in tensors]
        if told != true:
            wrong.append(f"{layer}: {true}, from the trace {told}")
    if len(bases) > 1:
        wrong.append(f"{len(bases)} buffers")
    return seen, wrong


if __name__ == "__main__":
    main(*sys.argv[1:])
