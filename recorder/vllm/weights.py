"""Which weights an engine has: what it computes under a hash depends on them, and no hash says so.

Two engines that share a cache must have the same. The same files are the same weights, wherever
they lie and under whatever name; what is compared is their sizes, some pages of them, the model's
config, and what the engine was told to make of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

_NOT_OF_THE_MODEL = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
"""Keys of a config that differ between copies of one model; the type in use is told apart."""

_PATTERNS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")

_PAGE = 4096

_MOST = 64
"""Files that are looked into; of the others name and size are enough."""


def weights_of(vllm_config: Any) -> str | None:
    """A name for the weights, equal where they are; None where their files cannot be found."""
    model_config = vllm_config.model_config
    place = _place(model_config)
    if place is None:
        return None
    made = blake2b(digest_size=16)
    config = _config(place)
    made.update(json.dumps([config, _told(model_config, config)], sort_keys=True).encode())
    if str(getattr(vllm_config.load_config, "load_format", "")) == "dummy":
        # Made by the engine itself, always the same of one config.
        made.update(b"dummy")
        return made.hexdigest()
    files = [place] if place.is_file() else _files(place)
    if not files:
        return None
    looked_into = set(files[:: -(-len(files) // _MOST)])
    for file in files:
        size = file.stat().st_size
        made.update(f"{file.name} {size}\n".encode())
        if file in looked_into:
            made.update(b"".join(_pages(file, size)))
    return made.hexdigest()


def _place(model_config: Any) -> Path | None:
    """The folder or file that a model is loaded from."""
    named = Path(str(model_config.model))
    if named.exists():
        return named
    try:
        found = import_module("huggingface_hub").try_to_load_from_cache(
            str(model_config.model), "config.json", revision=getattr(model_config, "revision", None)
        )
    except Exception:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _config(place: Path) -> dict[str, Any]:
    try:
        found = json.loads((place / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if key not in _NOT_OF_THE_MODEL}


def _told(model_config: Any, config: dict[str, Any]) -> list[str]:
    """What the engine makes of the files: of kernels that differ by machine nothing."""
    changed = getattr(model_config, "hf_overrides", None)
    told = [
        str(getattr(model_config, "dtype", "")),
        getattr(changed, "__qualname__", None) or json.dumps(changed, sort_keys=True, default=str),
    ]
    if "quantization_config" not in config:
        told.append(str(getattr(model_config, "quantization", "")))
    return told


def _files(place: Path) -> list[Path]:
    """The weight files of a folder: those that an index names, where it has one."""
    for pattern in _PATTERNS:
        found = sorted(place.glob(pattern))
        if found:
            index = place / f"model{pattern[1:]}.index.json"
            try:
                named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                return found
            return [file for file in found if file.name in named] or found
    return []


def _pages(file: Path, size: int) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for at in (0, size // 2, size - _PAGE):
            opened.seek(max(0, at), os.SEEK_SET)
            yield opened.read(_PAGE)
