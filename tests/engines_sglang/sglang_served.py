"""SGLang's own server with a tiny random model, on a CPU: its OpenAI endpoint, its scheduler and its
radix cache are real; attention is its torch backend, since its kernels have no build for a CPU."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from engines.served import BROKEN, Served, started, write_tokenizer

NEEDED = ("fastapi", "uvicorn", "uvloop", "jsonschema")
"""What its server imports beyond its cache and scheduler."""

_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128,
    "num_hidden_layers": 3, "vocab_size": 256, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "torch_dtype": "float32",
    "bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": False,
}  # fmt: skip

_FLAGS = [
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
    "--load-format", "dummy", "--dtype", "float32", "--disable-overlap-schedule",
    "--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled",
    "--page-size", "16", "--max-total-tokens", "4096", "--max-running-requests", "4",
    "--enable-cache-report", "--random-seed", "1", "--log-level", "warning",
]  # fmt: skip


def missing() -> list[str]:
    """What is not installed here of what the server needs."""
    found = []
    for name in NEEDED:
        try:
            version(name)
        except PackageNotFoundError:
            found.append(name)
    return found


@contextmanager
def served(folder: Path, *flags: str, **recorded: str) -> Iterator[Served]:
    """The server, once it answers; `recorded` are variables that ask for a recording."""
    place = folder / "llama"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(_CONFIG))
    write_tokenizer(place)
    broken = folder / "broken"
    broken.write_text("")
    path = [str(BROKEN), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environ = dict(
        os.environ, BROKEN_FILE=str(broken), BROKEN_SGLANG="1", HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1", SGLANG_PLUGINS="none",
        SGLANG_USE_CPU_ENGINE="1", PYTHONPATH=os.pathsep.join(filter(None, path)),
    )  # fmt: skip
    if recorded:
        environ |= {"SGLANG_PLUGINS": "hkvtool", **recorded}
    command = [
        sys.executable, "-m", "sglang.launch_server", "--model-path", str(place),
        "--host", "127.0.0.1", *_FLAGS, *flags,
    ]  # fmt: skip
    with started(folder, command, environ, broken) as server:
        yield server
