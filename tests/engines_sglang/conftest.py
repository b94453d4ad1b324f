"""SGLang where it is installed: without its GPU packages, a server or a network."""

from __future__ import annotations

import importlib.util
import os

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("sglang") is None else []

if not collect_ignore_glob:
    os.environ.update(
        HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1", SGLANG_PLUGINS="none"
    )  # fmt: skip
    from engines_sglang.absent import stand_in

    stand_in()
