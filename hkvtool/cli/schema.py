"""`hkvtool schema`: what a trace line must look like, for editors and converters."""

from __future__ import annotations

import json

from hkvtool.model.schema import line_schema


def command() -> None:
    """Print the JSON Schema (draft 2020-12) of one hkv/1 line.

    Every line of a trace validates against it alone. Unknown keys are allowed: they are kept and
    ignored.
    """
    print(json.dumps(line_schema(), indent=2, ensure_ascii=False))
