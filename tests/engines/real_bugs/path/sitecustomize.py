"""What earlier releases need in every process they start: GPU packages out of the way, and what
0.17 asks torch for when it chooses kernels (none of which runs here) and later torch lacks."""

import sys

for _name in ("torchvision", "torchaudio", "torchcodec"):
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]

try:
    import torch
except ImportError:
    pass
else:
    for _name in ("_is_avx512_supported", "_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        if not hasattr(torch._C._cpu, _name):
            setattr(torch._C._cpu, _name, lambda: False)
