"""Whole vLLM engines on a CPU: tiny models with random weights, no tokenizer, one process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
_MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gemma3": (
        {
            "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 32,
            "intermediate_size": 128, "num_hidden_layers": 6, "max_position_embeddings": 1024,
            "sliding_window": 64, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
            "query_pre_attn_scalar": 32, "rope_local_base_freq": 1e4, "rope_theta": 1e6,
            "hidden_activation": "gelu_pytorch_tanh", "torch_dtype": "float32", "pad_token_id": 0,
        },
        {"dtype": "float32", "max_model_len": 512, "block_size": 32, "max_num_batched_tokens": 128},
    ),
    "gptoss": (
        {
            "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 32,
            "intermediate_size": 64, "num_hidden_layers": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
            "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2,
            "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "attention_bias": True, "rope_theta": 150000.0,
            "rope_scaling": {
                "rope_type": "yarn", "factor": 2.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "original_max_position_embeddings": 512, "truncate": False,
            },
            "hidden_act": "silu", "swiglu_limit": 7.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "pad_token_id": 1,
        },
        {"dtype": "bfloat16", "max_model_len": 512, "block_size": 32, "max_num_batched_tokens": 128},
    ),
    "qwen3next": (
        {
            "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "head_dim": 64,
            "intermediate_size": 128, "num_hidden_layers": 4, "full_attention_interval": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"], "max_position_embeddings": 2048,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "partial_rotary_factor": 0.25,
            "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False, "decoder_sparse_step": 1,
            "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "num_experts_per_tok": 2,
            "num_experts": 4, "norm_topk_prob": True, "mlp_only_layers": [], "tie_word_embeddings": False,
            "torch_dtype": "bfloat16", "rms_norm_eps": 1e-6,
        },
        {
            "dtype": "bfloat16", "max_model_len": 1024, "block_size": None, "max_num_batched_tokens": 512,
            "mamba_cache_mode": "align", "num_gpu_blocks_override": 24,
        },
    ),
    "deepseek4": (
        {
            "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "hidden_size": 256,
            "moe_intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
            "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 128,
            "o_lora_rank": 64, "o_groups": 2, "index_n_heads": 8, "index_head_dim": 128, "index_topk": 64,
            "compress_ratios": [0, 4, 128, 4], "compress_rope_theta": 40000.0, "sliding_window": 128,
            "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "num_hash_layers": 0,
            "norm_topk_prob": True, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
            "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "hidden_act": "silu", "hc_mult": 4,
            "hc_eps": 1e-6, "hc_sinkhorn_iters": 20, "rms_norm_eps": 1e-6, "vocab_size": 512,
            "max_position_embeddings": 4096, "rope_theta": 10000.0,
            "rope_scaling": {
                "rope_type": "yarn", "type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                "original_max_position_embeddings": 65536,
            },
            "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        },
        {
            "dtype": "bfloat16", "max_model_len": 2048, "max_num_batched_tokens": 512,
            "num_gpu_blocks_override": 400, "block_size": None,
        },
    ),
}  # fmt: skip
MODELS = sorted(_MODELS)


def model_folder(folder: Path, name: str) -> tuple[Path, dict[str, Any]]:
    """Where one of the models lies, and the options that it is run with."""
    config, own = _MODELS[name]
    place = folder / name
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps({**_COMMON, **config}))
    return place, {"num_gpu_blocks_override": 64, **own}


def make_engine(folder: Path, name: str, **options: Any) -> Any:
    """A `vllm.LLM` of one of the models."""
    place, own = model_folder(folder, name)
    if name == "deepseek4":
        _without_compute()
    from vllm import LLM

    return LLM(
        model=str(place), load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
        enable_prefix_caching=True, max_num_seqs=4, seed=0, disable_log_stats=False,
        **{**own, **options},
    )  # fmt: skip


def core_of(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core


def generate(
    llm: Any, prompts: Sequence[Sequence[int]], output: int = 8
) -> list[tuple[list[int], int]]:
    """Generated tokens and cached prompt tokens of each prompt."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True, detokenize=False)
    done = llm.generate([{"prompt_token_ids": list(p)} for p in prompts], params, use_tqdm=False)
    return [(list(one.outputs[0].token_ids), one.num_cached_tokens) for one in done]


def _without_compute() -> None:
    """DeepSeek-V4's specs, groups, tensors and scheduler are real; its kernels need other CPUs."""
    import torch
    import vllm._custom_ops  # noqa: F401
    from vllm.models.deepseek_v4.cpu import model
    from vllm.platforms import current_platform
    from vllm.v1.worker.utils import AttentionGroup

    torch.ops._C.convert_weight_packed = lambda weight: weight

    def forward(self: Any, input_ids: Any, positions: Any, *_: Any, **__: Any) -> Any:
        weight = self.lm_head.weight
        return torch.zeros(positions.shape[0], weight.shape[-1], dtype=weight.dtype)

    model.DeepseekV4ForCausalLM.forward = forward
    AttentionGroup.build_metadata = lambda self, *_, **__: None
    cls = type(current_platform)
    original = cls.check_and_update_config.__func__
    if getattr(original, "keeps_prefix_cache", False):
        return

    def keep(cls: Any, config: Any) -> None:
        # The CPU platform turns prefix caching off for this kind of attention.
        cache, plan = config.cache_config, config.scheduler_config
        kept = cache.enable_prefix_caching, plan.enable_chunked_prefill, plan.max_num_batched_tokens
        original(cls, config)
        cache.enable_prefix_caching, plan.enable_chunked_prefill, plan.max_num_batched_tokens = kept

    keep.keeps_prefix_cache = True  # type: ignore[attr-defined]
    cls.check_and_update_config = classmethod(keep)
