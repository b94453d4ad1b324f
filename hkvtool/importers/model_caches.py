"""What each kind of attention keeps: rows, pages and blocks by the numbers of a model's config.

Source: the row formats that vLLM and SGLang allocate with. A kernel's demands are stated only
where they follow from the format alone, whatever backend is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hkvtool.model.errors import TraceError

BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1, "int8": 1,
}  # fmt: skip

ENGINE_DTYPES = {
    "fp8": "float8_e4m3", "fp8_e4m3": "float8_e4m3", "fp8_e5m2": "float8_e5m2",
    "bfloat16": "bfloat16", "float16": "float16", "half": "float16", "fp8_ds_mla": "float8_e4m3",
}  # fmt: skip
"""What `--kv-cache-dtype` names."""

MOST_LAYERS = 1 << 12

ATTENTION_BLOCK = 16
"""Tokens: every attention kernel for keys and values works in multiples of it."""

_V4_PAGE = 576
_V4_ROW = 584


@dataclass(frozen=True)
class Flags:
    """What is told to an engine on its command line."""

    block_size: int | None = None
    kv_cache_dtype: str = "auto"
    ssm_dtype: str = "auto"
    tensor_parallel: int = 1
    max_batched: int | None = None
    blocks: int | None = None


@dataclass
class Cache:
    """One group of layers that keep the same."""

    name: str
    form: str
    block: int
    dtype: str
    row: int
    layers: int = 1
    window: int = 0
    chunked: bool = False
    ratio: int = 1
    overlap: int = 0
    page: int = 0
    align: int = 0
    codec: str = ""
    scales: int = 0
    serves: str = ""
    table: str = ""
    kernel: str = ""
    expects: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def of(self, name: str, layers: int) -> Cache:
        """The same for some of its layers."""
        return replace(self, name=name, layers=layers)

    @property
    def page_bytes(self) -> int:
        """Bytes of a block of one layer."""
        return self.page or _up(self.row * max(1, self.block // self.ratio), self.align or 1)

    def group(self, blocks: int | None) -> dict[str, Any]:
        """Its declaration; where it is known how many blocks there are, with the region's end."""
        layout: dict[str, Any] = {"dtype": self.dtype, "page_bytes": self.page_bytes,
                                  "stride_bytes": self.page_bytes}  # fmt: skip
        if self.form != "recurrent":
            layout["row_bytes"] = self.row
        for key, value in (("codec", self.codec), ("scale_bytes", self.scales),
                           ("align", self.align)):  # fmt: skip
            if value:
                layout[key] = value
        if blocks:
            layout["region_bytes"] = blocks * self.page_bytes
        told: dict[str, Any] = {
            "group": self.name, "form": self.form, "pool": "gpu", "block_tokens": self.block,
            "layers": self.layers, "layout": layout,
        }  # fmt: skip
        if self.chunked:
            told["window_kind"] = "chunked"
        for key, empty in (("ratio", 1), ("window", 0), ("overlap", 0), ("serves", ""),
                           ("table", "")):  # fmt: skip
            if getattr(self, key) != empty:
                told[key] = getattr(self, key)
        return told


def number(text: Mapping[str, Any], *keys: str, default: int | None = None) -> int:
    """A positive integer of a configuration, by the first of some keys that it has."""
    for key in keys:
        value = text.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise TraceError(f"`{key}` of the model's config is {value!r}, not a positive integer")
        return value
    if default is not None:
        return default
    raise TraceError(
        f"the model's config does not say `{keys[0]}`",
        hint="preflight wants the config.json that the engine loads",
    )


def layer_count(text: Mapping[str, Any]) -> int:
    """How many layers a model has."""
    layers = number(text, "num_hidden_layers")
    if layers > MOST_LAYERS:
        raise TraceError(f"{layers} layers are more than any model has")
    return layers


def model_dtype(text: Mapping[str, Any]) -> str:
    """The dtype of the weights, which an engine's caches have where nothing else is said."""
    said = str(text.get("dtype") or text.get("torch_dtype") or "bfloat16")
    name = said.removeprefix("torch.")
    if name not in BYTES:
        raise TraceError(f"a model of dtype {name} is not known here")
    return name


def cache_dtype(text: Mapping[str, Any], flags: Flags) -> str:
    """The dtype of keys and values."""
    if flags.kv_cache_dtype == "auto":
        return model_dtype(text)
    found = ENGINE_DTYPES.get(flags.kv_cache_dtype)
    if found is None:
        raise TraceError(
            f"a cache of dtype {flags.kv_cache_dtype!r} is not known here",
            hint=f"known: auto, {', '.join(ENGINE_DTYPES)}",
        )
    return found


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _share(heads: int, parts: int) -> int:
    """Heads of one of the tensor-parallel shards; each has a copy where they are too few."""
    if heads % parts and parts % heads:
        raise TraceError(f"{heads} heads of keys and values cannot be shared by {parts} shards")
    return max(1, heads // parts)


def _attention(name: str, form: str, text: Mapping[str, Any], flags: Flags, **more: Any) -> Cache:
    """Keys and values of each token."""
    heads = number(text, "num_attention_heads")
    kept = _share(number(text, "num_key_value_heads", default=heads), flags.tensor_parallel)
    size = text.get("head_dim") or number(text, "hidden_size") // heads
    dtype = cache_dtype(text, flags)
    row = 2 * kept * int(size) * BYTES[dtype]
    unknown = ["whether the attention backend takes this dtype"] if BYTES[dtype] == 1 else []
    return Cache(
        name, form, flags.block_size or ATTENTION_BLOCK, dtype, row, unknown=unknown,
        kernel=f"{name} attention", expects={"kernel_block_tokens": ATTENTION_BLOCK}, **more,
    )  # fmt: skip


def full(text: Mapping[str, Any], flags: Flags) -> Cache:
    """Full attention: all that came before."""
    return _attention("full", "compressed", text, flags)


def sliding(text: Mapping[str, Any], flags: Flags) -> Cache:
    """A window that slides with the last token."""
    return _attention("swa", "swa", text, flags, window=number(text, "sliding_window"))


def chunked(text: Mapping[str, Any], flags: Flags) -> Cache:
    """The current chunk only."""
    size = number(text, "attention_chunk_size")
    return _attention("chunk", "swa", text, flags, window=size, chunked=True)


def recurrent(text: Mapping[str, Any], flags: Flags) -> Cache:
    """A gated delta net: the last inputs of its convolution, and one matrix a head."""
    keys, values = number(text, "linear_num_key_heads"), number(text, "linear_num_value_heads")
    key, value = number(text, "linear_key_head_dim"), number(text, "linear_value_head_dim")
    parts, dtype = flags.tensor_parallel, model_dtype(text)
    said = flags.ssm_dtype if flags.ssm_dtype != "auto" else text.get("mamba_ssm_dtype") or dtype
    state_dtype = ENGINE_DTYPES.get(str(said), str(said))
    if state_dtype not in BYTES:
        raise TraceError(f"a state of dtype {said} is not known here")
    conv = (number(text, "linear_conv_kernel_dim") - 1) * (
        2 * _share(keys, parts) * key + _share(values, parts) * value
    )
    state = _share(values, parts) * value * key
    page = conv * BYTES[dtype] + state * BYTES[state_dtype]
    unknown = []
    if flags.ssm_dtype == "auto" and "mamba_ssm_dtype" not in text:
        unknown.append(f"the dtype of the states: taken to be the model's, {dtype} (--ssm-dtype)")
    return Cache("gdn", "recurrent", 0, state_dtype, page, page=page, codec="gdn/1",
                 unknown=unknown)  # fmt: skip


def align_to_state(others: Sequence[Cache], state: Cache, flags: Flags) -> None:
    """Blocks of all groups are as large: as many tokens as make a page no smaller than a state."""
    if not others:
        state.block = flags.block_size or ATTENTION_BLOCK
        return
    row = max(cache.row for cache in others)
    least = _up(-(-state.page // row), ATTENTION_BLOCK)
    asked = flags.block_size
    block = max(least, asked or 0)
    if asked and asked < least:
        state.notes.append(
            f"a page holds a state of {state.page:,} bytes: an engine makes blocks of {least} "
            f"tokens of the {asked} asked for"
        )
    for cache in (*others, state):
        cache.block = block
    state.page = block * row


def latent(text: Mapping[str, Any], flags: Flags) -> list[Cache]:
    """MLA: one latent row a token; with an indexer, rows in a format of its own beside it."""
    layers = layer_count(text)
    rank, rope = number(text, "kv_lora_rank"), number(text, "qk_rope_head_dim")
    block = flags.block_size or 64
    if "index_topk" not in text:
        dtype = cache_dtype(text, flags)
        row = (rank + rope) * BYTES[dtype]
        return [
            Cache("mla", "compressed", block, dtype, row, layers,
                  unknown=["the block that the MLA backend works in"])
        ]  # fmt: skip
    sparse: dict[str, Any] = {"kernel_block_tokens": 64}
    if flags.kv_cache_dtype in ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla"):
        scales = 4 * (rank // 128)
        history = Cache("mla", "compressed", block, "float8_e4m3", rank + scales + 2 * rope, layers,
                        codec="fp8_ds_mla/1", scales=scales)  # fmt: skip
        sparse.update(dtype="float8_e4m3", row_bytes=656, codec="fp8_ds_mla/1")
    else:
        dtype = cache_dtype(text, flags)
        history = Cache("mla", "compressed", block, dtype, (rank + rope) * BYTES[dtype], layers)
        sparse.update(dtype="bfloat16", row_bytes=1152)
    history.table, history.kernel, history.expects = "history", "sparse MLA", sparse
    size = number(text, "index_head_dim", default=128)
    index = Cache(
        "idx", "indexer", block, "float8_e4m3", size + 4, layers, codec="dsa_idx/1", scales=4,
        serves="mla", table="history", kernel="indexer",
        expects={"kernel_block_tokens": 64, "row_bytes": 132, "dtype": "float8_e4m3"},
    )  # fmt: skip
    return [history, index]


def compressed(text: Mapping[str, Any], flags: Flags) -> list[Cache]:
    """Layers that keep one entry of 4 or 128 tokens, what is not compressed yet, an indexer for
    those of 4, and a window of plain rows in every layer."""
    ratios = text["compress_ratios"]
    if not isinstance(ratios, list) or not set(ratios) <= {0, 4, 128}:
        raise TraceError("`compress_ratios` is no list of 0, 4 and 128")
    layers = layer_count(text)
    ratios = ratios[:layers]
    if len(ratios) != layers:
        raise TraceError(f"`compress_ratios` has {len(ratios)} entries for {layers} layers")
    if flags.kv_cache_dtype not in ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla"):
        raise TraceError(f"there is no cache of dtype {flags.kv_cache_dtype} for compressed layers")
    block, dim = flags.block_size or 256, number(text, "head_dim")
    four, many = ratios.count(4), ratios.count(128)
    row: dict[str, Any] = {"align": _V4_PAGE, "codec": "fp8_ds_v4/1", "scales": 8}
    history: dict[str, Any] = {**row, "table": "history"}
    state: dict[str, Any] = {"align": _V4_PAGE}
    wants = {"row_bytes": _V4_ROW, "dtype": "float8_e4m3", "codec": "fp8_ds_v4/1"}
    found: list[Cache] = []
    for part in range(2):
        window = number(text, "sliding_window")
        found.append(
            Cache(f"swa{part}", "swa", 64, "float8_e4m3", _V4_ROW, len(range(part, layers, 2)),
                  window=window, kernel="sparse MLA",
                  expects={**wants, "kernel_block_tokens": 64}, **row)
        )  # fmt: skip
    if four:
        size = number(text, "index_head_dim", default=128)
        found += [
            Cache("c4", "compressed", block, "float8_e4m3", _V4_ROW, four, ratio=4,
                  kernel="sparse MLA", expects={**wants, "kernel_block_tokens": 256}, **history),
            Cache("idx", "indexer", block, "float8_e4m3", size + 4, four, ratio=4, serves="c4",
                  align=_V4_PAGE, codec="dsa_idx/1", scales=4, table="history", kernel="indexer",
                  expects={"row_bytes": 132, "dtype": "float8_e4m3", "kernel_block_tokens": 256}),
            Cache("c4.state", "tail", 4, "float32", 16 * dim, four, overlap=4, serves="c4",
                  table="c4.state", **state),
            Cache("idx.state", "tail", 4, "float32", 16 * size, four, overlap=4, serves="idx",
                  table="c4.state", **state),
        ]  # fmt: skip
    if many:
        found += [
            Cache("c128", "compressed", block, "float8_e4m3", _V4_ROW, many, ratio=128,
                  kernel="sparse MLA", expects={**wants, "kernel_block_tokens": 256}, **history),
            Cache("c128.state", "tail", 8, "float32", 8 * dim, many, serves="c128", **state),
        ]  # fmt: skip
    return found
