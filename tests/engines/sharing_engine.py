"""One of several tiny vLLM engines on one folder, by the connector that ships with vLLM; run as a
program. Its prompts come one after the other, as JSON, and so do its options."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engines import vllm_engine


def main(model: str, kv: str, prompts: str, options: str) -> None:
    from vllm import SamplingParams
    from vllm.config import KVTransferConfig

    more = json.loads(options)
    salt = more.pop("salt", None)
    vllm_engine._MODELS["gemma3"][0].update(more.pop("config", {}))
    place = Path(model)
    place.mkdir(exist_ok=True)
    llm = vllm_engine.make_engine(
        place, "gemma3", disable_hybrid_kv_cache_manager=True, max_num_batched_tokens=512, **more,
        kv_transfer_config=KVTransferConfig(
            kv_connector="ExampleConnector", kv_role="kv_both",
            kv_connector_extra_config={"shared_storage_path": kv},
        ),
    )  # fmt: skip
    params = SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True, detokenize=False)
    for tokens in json.loads(prompts):
        asked = {"prompt_token_ids": tokens, **({"cache_salt": salt} if salt else {})}
        [done] = llm.generate([asked], params, use_tqdm=False)
        print("cached", done.num_cached_tokens, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
