"""What an engine's cache spec means in the words of the trace: form, window, ratio, codec."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

_FORMS = (
    ("MambaSpec", "recurrent", "mamba"),
    ("CircularBufferSpec", "tail", "ring"),
    ("SlidingWindowMLASpec", "swa", "swa"),
    ("SlidingWindowSpec", "swa", "swa"),
    ("ChunkedLocalAttentionSpec", "swa", "chunk"),
    ("CrossAttentionSpec", "compressed", "cross"),
    ("EncoderOnlyAttentionSpec", "compressed", "encoder"),
    ("RSWASpec", "compressed", "rswa"),
    ("MLAAttentionSpec", "compressed", "mla"),
    ("FullAttentionSpec", "compressed", "full"),
)
"""By class, most derived first: the form, and how its groups are called."""

_ELSEWHERE = frozenset({"CrossAttentionSpec", "EncoderOnlyAttentionSpec", "CircularBufferSpec"})
"""Groups that a resume does not need: nothing of them is ever found by hash."""


_INDEXER, _STATE = ".indexer.k_cache", ".compressor.state_cache"
"""How layers are named that hold an indexer's rows, and a compressor's open unit."""


class Part(NamedTuple):
    """The layers of one cache group that hold one kind of content."""

    spec: Any
    layers: list[str]


def parts(group: Any) -> list[Part]:
    """A group's layers by what they hold; the first part is the one its block table is named by.

    A group may merge layers of several specs over one block table: compressed histories of two
    ratios and an indexer, say. The scheduler's own copy of the config keeps only one of them.
    """
    spec = group.kv_cache_spec
    by_layer = getattr(spec, "kv_cache_specs", None)
    if by_layer is None:
        return [Part(spec, list(group.layer_names))]
    found: list[Part] = []
    for layer in group.layer_names:
        mine = by_layer[layer]
        for part in found:
            if part.spec == mine:
                part.layers.append(layer)
                break
        else:
            found.append(Part(mine, [layer]))
    found.sort(key=lambda part: role(part) == "indexer")
    return found


def role(part: Part) -> str:
    """`indexer` for rows that route sparse attention, `tail` for what a compressor keeps of the
    unit it has open; else nothing. A spec does not always say so, but the layers' names do."""
    value = getattr(part.spec, "cache_role", None)
    if str(getattr(value, "name", value) or "").lower() == "indexer":
        return "indexer"
    if all(layer.endswith(_INDEXER) for layer in part.layers):
        return "indexer"
    if all(layer.endswith(_STATE) for layer in part.layers):
        return "tail"
    return ""


def served(part: Part) -> tuple[str, ...]:
    """Names that the layer may have whose content this part belongs to, likeliest first."""
    layer = part.layers[0]
    if role(part) == "indexer":
        return (layer.removesuffix(_INDEXER),)
    if role(part) == "tail":
        owner = layer.removesuffix(_STATE)
        return (owner, f"{owner}.k_cache")
    return ()


def kind(spec: Any) -> tuple[str, str, str]:
    """Class that is known of the spec, the form, and the stem of the group's name."""
    names = {cls.__name__ for cls in type(spec).__mro__}
    for name, form, stem in _FORMS:
        if name in names:
            return name, form, stem
    return "", "compressed", "group"


def keys(part: Part) -> dict[str, Any]:
    """Keys of the `group` event that follow from the part alone."""
    spec = part.spec
    name, form, _ = kind(spec)
    form = role(part) or form
    out: dict[str, Any] = {
        "form": form, "block_tokens": int(spec.block_size), "layers": part.layers,
    }  # fmt: skip
    ratio = getattr(spec, "tokens_per_state", 1)
    if isinstance(ratio, (int, Fraction)) and ratio > 1 and form != "recurrent":
        out["ratio"] = int(ratio)
    if form in ("swa", "tail"):
        chunk = getattr(spec, "attention_chunk_size", None)
        if name == "ChunkedLocalAttentionSpec" and chunk:
            out["window"], out["window_kind"] = int(chunk), "chunked"
        elif hasattr(spec, "sliding_window"):
            out["window"], out["window_kind"] = int(spec.sliding_window), "sliding"
        if getattr(spec, "bounded_replay", False):
            out["replayed"] = True
    if name in _ELSEWHERE or not getattr(spec, "prefix_cacheable", True):
        if not out.get("replayed"):
            out["participates"] = False
    mode = getattr(spec, "mamba_cache_mode", None)
    if mode is not None:
        # Where a reader finds the state: `align` and `all` keep states by position.
        out["states"] = str(mode)
        if mode == "none":
            out["participates"] = False
    return out


def codec(spec: Any) -> str:
    """Codec of a part's stored entries."""
    named = getattr(spec, "cache_dtype_str", None)
    return f"{named}/1" if named and "ds_mla" in str(named) else "identity/1"


def dtype(spec: Any) -> str:
    """Data type of a part, as torch calls it."""
    value = getattr(spec, "dtype", None)
    if value is None:
        value = (getattr(spec, "dtypes", None) or ("",))[0]
    return str(value).removeprefix("torch.")
