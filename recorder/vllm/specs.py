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
    found.sort(key=lambda part: role(part.spec) != "")
    return found


def role(spec: Any) -> str:
    """`indexer` for the rows that route sparse attention, else nothing."""
    value = getattr(spec, "cache_role", None)
    name = str(getattr(value, "name", value) or "").lower()
    return "indexer" if name == "indexer" else ""


def kind(spec: Any) -> tuple[str, str, str]:
    """Class that is known of the spec, the form, and the stem of the group's name."""
    names = {cls.__name__ for cls in type(spec).__mro__}
    for name, form, stem in _FORMS:
        if name in names:
            return name, form, stem
    return "", "compressed", "group"


def keys(spec: Any, layers: list[str]) -> dict[str, Any]:
    """Keys of the `group` event that follow from the spec alone."""
    name, form, _ = kind(spec)
    out: dict[str, Any] = {"form": form, "block_tokens": int(spec.block_size), "layers": layers}
    if role(spec) == "indexer":
        out["form"] = form = "indexer"
    ratio = getattr(spec, "tokens_per_state", 1)
    if isinstance(ratio, (int, Fraction)) and ratio > 1 and form != "recurrent":
        out["ratio"] = int(ratio)
    if form == "swa":
        chunk = getattr(spec, "attention_chunk_size", None)
        if name == "ChunkedLocalAttentionSpec" and chunk:
            out["window"], out["window_kind"] = int(chunk), "chunked"
        else:
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
