"""Packages that are built for GPUs and break at import; vllm looks for them in every process."""

import sys

for _name in ("torchvision", "torchaudio", "torchcodec"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]
