"""Modules that SGLang imports and a CPU has no use for: kernels, codecs, grammars.

Only what is not installed is stood in for, so that a real package always wins.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any
from unittest.mock import MagicMock

ABSENT = (
    "av", "blobfile", "compressed_tensors", "cutlass", "datasets", "decord", "decord2",
    "deep_gemm", "einops", "fastapi", "flash_mla", "flashinfer", "gguf", "humming", "interegular", "kernels", "librosa",
    "llguidance", "mistral_common", "modelscope", "numba", "openai_harmony", "outlines", "quack",
    "setproctitle", "sgl_kernel", "soundfile", "soxr", "tilelang", "timm", "torch_memory_saver", "torchao",
    "torchaudio", "torchcodec", "torchvision", "uvicorn", "xgrammar", "zstandard",
)  # fmt: skip


class _Anything(type):
    """A class that has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


def _schema(cls: type, source: Any, handler: Any) -> Any:
    from pydantic_core import core_schema

    return core_schema.any_schema()


def _taken(self: Any, *args: Any, **kwargs: Any) -> None:
    """An instance takes whatever it is given."""


def _part(self: Any, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name[:1].isupper():
            return _Anything(
                name, (),
                {"__get_pydantic_core_schema__": classmethod(_schema), "__init__": _taken,
                 "__getattr__": _part},
            )  # fmt: skip
        return MagicMock(name=f"{self.__name__}.{name}")


class _StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = []
        module.__version__ = "0"  # type: ignore[attr-defined]
        module.__file__ = "<absent>"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def stand_in() -> None:
    """From here on what is absent can be imported, and does nothing."""
    if any(isinstance(finder, _StandIn) for finder in sys.meta_path):
        return
    if importlib.util.find_spec("transformers") is not None:
        # It asks which packages there are, and remembers: before there are more.
        from transformers.utils import import_utils

        for name in dir(import_utils):
            if name.startswith("is_") and name.endswith("_available"):
                try:
                    getattr(import_utils, name)()
                except Exception:
                    continue
        import transformers.image_utils
        import transformers.processing_utils  # noqa: F401
    sys.meta_path.append(_StandIn())
