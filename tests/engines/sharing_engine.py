"""One of several tiny vLLM engines on one folder, by a connector that ships with vLLM; run as a
program. Its prompts come one after the other, as JSON, and so do its options."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from engines import vllm_engine


def by_files(kv: str) -> dict[str, Any]:
    """A file for each layer of a prompt."""
    return {
        "disable_hybrid_kv_cache_manager": True, "max_num_batched_tokens": 512,
        "kv_transfer_config": {
            "kv_connector": "ExampleConnector",
            "kv_connector_extra_config": {"shared_storage_path": kv},
        },
    }  # fmt: skip


def by_tiers(kv: str) -> dict[str, Any]:
    """A tier of this engine's own, and below it a file for each block of a group."""
    below = {"type": "fs", "root_dir": kv, "n_read_threads": 1, "n_write_threads": 1}
    return {
        "kv_transfer_config": {
            "kv_connector": "OffloadingConnector",
            "kv_connector_extra_config": {
                "cpu_bytes_to_use": 1 << 22, "spec_name": "Tiers",
                "spec_module_path": "engines.tiered_copies", "secondary_tiers": [below],
            },
        },
    }  # fmt: skip


def main(model: str, kv: str, prompts: str, options: str) -> None:
    from vllm import SamplingParams
    from vllm.config import KVTransferConfig

    more = json.loads(options)
    salt = more.pop("salt", None)
    vllm_engine._MODELS["gemma3"][0].update(more.pop("config", {}))
    place = Path(model)
    place.mkdir(exist_ok=True)
    own = by_tiers(kv) if more.pop("tiers", False) else by_files(kv)
    transfer = KVTransferConfig(kv_role="kv_both", **own.pop("kv_transfer_config"))
    llm = vllm_engine.make_engine(place, "gemma3", kv_transfer_config=transfer, **own, **more)
    params = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True, detokenize=False)
    for tokens in json.loads(prompts):
        asked = {"prompt_token_ids": tokens, **({"cache_salt": salt} if salt else {})}
        [done] = llm.generate([asked], params, use_tqdm=False)
        print("cached", done.num_cached_tokens, flush=True)
    # What is still on its way to the folder gets there.
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
