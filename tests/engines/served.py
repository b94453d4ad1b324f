"""`vllm serve` of a tiny random hybrid model, on this machine's loopback, gone with the test."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engines.vllm_engine import model_folder

BROKEN = Path(__file__).parent / "broken"
PATIENCE = 600.0

_SPREAD = {"gemma3": "1.5", "qwen3next": "0.7"}
"""How much larger than usual weights are: enough that each block tells on the answer, and that what
bfloat16 rounds off does not."""


@dataclass
class Served:
    """A server, and what is broken in it."""

    url: str
    process: subprocess.Popen[bytes]
    _file: Path

    def breaks(self, fault: str) -> None:
        """From the next request on; an empty name mends it."""
        place = self._file.with_suffix(".new")
        place.write_text(fault)
        place.rename(self._file)


@contextmanager
def served(
    folder: Path, model: str, *args: str, recorded: Sequence[str] = (), offload: bool = False
) -> Iterator[Served]:
    """The server, once it answers. `recorded` is a command that starts it, ending with `--`."""
    place, options = model_folder(folder, model)
    config = json.loads((place / "config.json").read_text())
    if "num_experts" in config:
        # Which experts take part must not waver: what that does to an answer is larger than a fault.
        config["num_experts_per_tok"] = config["num_experts"]
        (place / "config.json").write_text(json.dumps(config))
    write_tokenizer(place)
    broken = folder / "broken"
    broken.write_text("")
    environ = dict(
        os.environ, BROKEN_FILE=str(broken), HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
        VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="WARNING",
        OMP_NUM_THREADS="1", VLLM_HOST_IP="127.0.0.1",
        BROKEN_SPREAD=_SPREAD[model],
        PYTHONPATH=os.pathsep.join(filter(None, [str(BROKEN), os.environ.get("PYTHONPATH", "")])),
    )  # fmt: skip
    environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    environ.pop("VLLM_PLUGINS", None)
    if offload:
        args = (*args, "--kv-transfer-config", json.dumps(_OFFLOAD))
    command = [
        *recorded, sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(place),
        "--served-model-name", model, "--host", "127.0.0.1",
        "--load-format", "dummy", "--enforce-eager", "--max-num-seqs", "4",
        "--enable-prompt-tokens-details", "--enable-prefix-caching", *_flags(options), *args,
    ]  # fmt: skip
    with started(folder, command, environ, broken) as server:
        yield server


@contextmanager
def started(
    folder: Path, command: Sequence[str], environ: Mapping[str, str], broken: Path
) -> Iterator[Served]:
    """The server that a command starts on a port that it is given, once it answers."""
    log = folder / "server.log"
    with own_port() as port, log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--port", str(port)], env=environ, stdout=out, stderr=out, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        try:
            wait_for(port, process, log)
            yield Served(f"http://127.0.0.1:{port}", process, broken)
        finally:
            end(process)


_OFFLOAD = {
    "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "cpu_bytes_to_use": 1 << 26, "spec_name": "SlowTierSpec", "spec_module_path": "slow_tier",
    },
}  # fmt: skip


def _flags(options: dict[str, object]) -> list[str]:
    found: list[str] = []
    for name, value in options.items():
        if value is not None:
            found += [f"--{name.replace('_', '-')}", str(value)]
    return found


@contextmanager
def own_port() -> Iterator[int]:
    """A port for a server that a test starts, which nobody else is given until the test is done with
    it: it stays bound here as well, and who listens on it gets all that comes."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        health = f"http://127.0.0.1:{port}/health"
        with suppress(OSError), urllib.request.urlopen(health, timeout=5):
            return
        time.sleep(0.5)
    raise AssertionError(f"the server does not answer:\n{log.read_text(errors='replace')[-4000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    """The group is ours: it was started as a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
            if number == signal.SIGTERM:
                continue
            return


def write_tokenizer(place: Path) -> None:
    """A word for each id, so that the server need not be told to go without."""
    words = {f"w{i}": i for i in range(256)}
    (place / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
                "post_processor": None, "decoder": None,
                "model": {"type": "WordLevel", "vocab": words, "unk_token": "w2"},
            }
        )
    )  # fmt: skip
    (place / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w2"})
    )
