"""A tiny vLLM engine that is recorded by its connector interface alone; run as a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vllm.config import KVTransferConfig

from engines.vllm_engine import core_of, generate, make_engine
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.session import current


class Kept(Recording):
    """A recording that only keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.folder = "kept"

    def emit_dict(self, data: Any) -> bool:
        self.events.append(dict(data))
        return True

    def emitter(self, ev: str, keys: Any) -> Any:
        def emit(*values: Any) -> bool:
            given = {k: v for k, v in zip(keys, values, strict=True) if v is not None}
            return self.emit_dict({"ev": ev, **given})

        return emit

    def keyed(self, value: Any) -> str:
        return str(value)

    def close(self, *, complete: bool = True) -> None: ...


def main(folder: str, out: str, recorded: str) -> None:
    kept = Kept()
    more: dict[str, Any] = {}
    if recorded == "yes":
        current().take(kept)
        more["kv_transfer_config"] = KVTransferConfig(
            kv_connector="HkvRecorder", kv_role="kv_producer",
            kv_connector_module_path="hkvtool.recorder.vllm_connector",
        )  # fmt: skip
    llm = make_engine(Path(folder), "gemma3", **more)
    prompt = [(i * 7) % 200 + 5 for i in range(200)]
    outputs = []
    for asked in ([prompt], [prompt], [prompt[:150] + [9] * 40, prompt[50:], prompt]):
        outputs += generate(llm, asked, 6)
    defers = core_of(llm).scheduler.defer_block_free
    Path(out).write_text(json.dumps({"events": kept.events, "outputs": outputs, "defers": defers}))


if __name__ == "__main__":
    main(*sys.argv[1:])
