"""A tiny vLLM engine with a connector that hkvtool knows nothing of; run as a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import engines.conftest  # noqa: F401  the environment of an engine
from engines.engine_state import Folded, differences
from engines.vllm_engine import core_of, generate, make_engine
from hkvtool.recorder.vllm.attach import attach

CONNECTORS: dict[str, dict[str, Any]] = {
    "within": {"kv_connector": "ExampleConnector"},
    "meanwhile": {
        "kv_connector": "Remote", "kv_connector_module_path": "engines.remote",
        "kv_load_failure_policy": "recompute",
    },
}  # fmt: skip


def main(folder: str, kind: str, out: str) -> None:
    from vllm.config import KVTransferConfig

    place = Path(folder)
    folded = Folded()
    hooks = attach(folded)
    config = KVTransferConfig(
        kv_role="kv_both", kv_connector_extra_config={"shared_storage_path": str(place / "kv")},
        **CONNECTORS[kind],
    )  # fmt: skip
    llm = make_engine(
        place, "gemma3", kv_transfer_config=config, disable_hybrid_kv_cache_manager=True,
        max_num_batched_tokens=1024,
    )  # fmt: skip
    scheduler = core_of(llm).scheduler
    plan, found = scheduler.schedule, []

    def schedule(*args: Any, **kwargs: Any) -> Any:
        found.extend(differences(folded, hooks, scheduler))
        return plan(*args, **kwargs)

    scheduler.schedule = schedule
    prompt = [(i * 7) % 200 + 5 for i in range(200)]
    generate(llm, [prompt], 6)
    llm.reset_prefix_cache()
    generate(llm, [prompt], 6)
    for k in (3, 11, 13, 17):
        generate(llm, [[(i * k) % 199 + 3 for i in range(300)], prompt[k:]], 8)
    generate(llm, [prompt, prompt[:150] + [9] * 40], 6)
    told = {"events": folded.events, "differences": found[:5], "failed": hooks.failed}
    Path(out).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
