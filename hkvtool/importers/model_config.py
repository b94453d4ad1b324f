"""A model's `config.json` and an engine's flags as the cache groups they come to.

Source: the configuration classes of Hugging Face transformers, and how vLLM groups layers, sizes
pages and aligns blocks of different kinds. What neither file nor flags say is listed, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd, lcm
from typing import Any

from hkvtool.importers import model_caches
from hkvtool.importers.model_caches import Cache, Flags, layer_count
from hkvtool.model.errors import TraceError

BLOCKS = 1024
"""Blocks that the pool is taken to have where nothing is said: no static rule depends on it."""


@dataclass
class Derived:
    """Declarations in the form that `hkvtool.analyzers.preflight.config_events` takes, how they
    were come by, and what could not be told."""

    declared: dict[str, list[dict[str, Any]]]
    caches: list[Cache]
    notes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"groups": self.declared["groups"], "notes": self.notes, "unknown": self.unknown}


def is_model_config(config: Mapping[str, Any]) -> bool:
    """Whether a JSON object is what a model's `config.json` holds."""
    return "groups" not in config and bool(
        {"model_type", "architectures", "num_hidden_layers", "text_config"} & config.keys()
    )


def derived(config: Mapping[str, Any], flags: Flags) -> Derived:
    """The groups of a model. Raises TraceError where nothing of its caches can be told."""
    text = _text_part(config)
    if "compress_ratios" in text:
        caches = model_caches.compressed(text, flags)
    elif "kv_lora_rank" in text:
        caches = model_caches.latent(text, flags)
    else:
        caches = _by_layer(text, flags)
    found = Derived({"pools": [], "groups": [], "kernels": [], "limits": []}, caches)
    for cache in caches:
        found.unknown += [u for u in cache.unknown if u not in found.unknown]
    _declare(found, flags)
    _tell(found, flags)
    return found


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a model that has others."""
    inner = config.get("text_config") or config.get("llm_config")
    if not isinstance(inner, Mapping):
        return config
    outer = {k: v for k, v in config.items() if k in ("torch_dtype", "dtype")}
    return {**outer, **inner}


def layer_kinds(text: Mapping[str, Any]) -> list[str]:
    """The kind of each layer's attention, in the words of `layer_types`."""
    layers = layer_count(text)
    stated = text.get("layer_types")
    if isinstance(stated, Sequence) and not isinstance(stated, str):
        kinds = [str(kind) for kind in stated]
        if len(kinds) != layers:
            raise TraceError(f"`layer_types` has {len(kinds)} entries for {layers} layers")
        return kinds
    every = text.get("full_attention_interval") or text.get("sliding_window_pattern")
    other = "linear_attention" if "linear_num_value_heads" in text else "sliding_attention"
    if isinstance(every, int) and every > 0:
        return [other if (n + 1) % every else "full_attention" for n in range(layers)]
    rope = text.get("no_rope_layers")
    if text.get("attention_chunk_size") and isinstance(rope, list) and len(rope) == layers:
        return ["chunked_attention" if one else "full_attention" for one in rope]
    if text.get("sliding_window") and text.get("use_sliding_window", True):
        return ["sliding_attention"] * layers
    return ["full_attention"] * layers


def _by_layer(text: Mapping[str, Any], flags: Flags) -> list[Cache]:
    """Groups of a model whose layers each hold keys and values, or a state."""
    made = {
        "full_attention": model_caches.full,
        "sliding_attention": model_caches.sliding,
        "chunked_attention": model_caches.chunked,
        "linear_attention": model_caches.recurrent,
    }
    kinds = Counter(layer_kinds(text))
    strange = sorted(kinds.keys() - made.keys())
    if strange:
        raise TraceError(
            f"layers of kind {', '.join(strange)} are not known here",
            hint="describe the groups by hand; see `hkvtool preflight` in docs/checking.md",
        )
    caches = {kind: made[kind](text, flags) for kind in made if kind in kinds}
    state = caches.get("linear_attention")
    if state is not None:
        others = [cache for cache in caches.values() if cache is not state]
        model_caches.align_to_state(others, state, flags)
    return _grouped(caches, kinds)


def _grouped(caches: Mapping[str, Cache], kinds: Mapping[str, int]) -> list[Cache]:
    """As many layers in each group as the rarest kind has, or the commonest where they are nearly
    as many: then a block of every group is as large."""
    least, most = min(kinds.values()), max(kinds.values())
    size = most if most < 1.5 * least else least
    found: list[Cache] = []
    for kind, cache in caches.items():
        parts = -(-kinds[kind] // size)
        for part in range(parts):
            name = cache.name if parts == 1 else f"{cache.name}{part}"
            found.append(cache.of(name, len(range(part, kinds[kind], parts))))
    return found


def _declare(found: Derived, flags: Flags) -> None:
    blocks = flags.blocks or BLOCKS
    pool = {"pool": "gpu", "medium": "gpu", "blocks": blocks, "reserved": [0]}
    found.declared["pools"].append(pool)
    for cache in found.caches:
        found.declared["groups"].append(cache.group(flags.blocks))
        if cache.kernel:
            found.declared["kernels"].append(
                {"kernel": cache.kernel, "group": cache.name, "expects": cache.expects}
            )
    if not flags.blocks:
        found.unknown.append("how many blocks fit (--blocks), and with it the region's end")
    found.unknown.append("addresses and the order of axes, which the attention backend decides")


def _tell(found: Derived, flags: Flags) -> None:
    """What follows for hits from blocks of several sizes, and from the tokens of a step."""
    sizes = sorted({cache.block for cache in found.caches})
    unit = lcm(*sizes)
    if len(sizes) > 1:
        found.notes.append(
            f"blocks of {', '.join(map(str, sizes))} tokens: hits are multiples of {unit}, hashes "
            f"of {gcd(*sizes)}"
        )
    states = [c for c in found.caches if c.form == "recurrent"]
    step = flags.max_batched
    if states and step is not None and step < states[0].block:
        found.notes.append(
            f"a step of {step} tokens never reaches the end of a block of {states[0].block}: no "
            "state is kept for a prefix to be resumed from"
        )
    windows: dict[tuple[int, int], list[str]] = {}
    for cache in found.caches:
        if cache.form == "swa" and not cache.chunked:
            windows.setdefault((cache.window, cache.block), []).append(cache.name)
    for (window, block), names in windows.items():
        told = f"{', '.join(names)}: a hit needs the last {-(-(window - 1) // block)} blocks"
        if step is not None:
            told += f"; a request holds up to {-(-(window - 1 + step) // block) + 1} of each"
        found.notes.append(told)
    found.notes += dict.fromkeys(note for cache in found.caches for note in cache.notes)
