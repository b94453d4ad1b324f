"""The JSON Schema (draft 2020-12) of one `hkv/1` line, made from the event table.

It says what `check_keys` says, but for three things that JSON Schema has no words for: a token
range that ends before it starts, two lists that must be equally long, and a whole number written
with a fraction (`1.0`), which only `check_keys` refuses.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.events import EVENTS, FORMAT, EventSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def line_schema() -> dict[str, Any]:
    """The schema of a line: which `ev` there are, and for each what its keys must be."""
    types = {key.type.name: key.type for spec in EVENTS.values() for key in spec.keys.values()}
    return {
        "$schema": DIALECT,
        "title": f"One line of a trace, {FORMAT}",
        "description": "One event. Keys that are not listed are kept and ignored.",
        "type": "object",
        "required": ["ev"],
        "properties": {"ev": {"enum": list(EVENTS), "description": "which event it is"}},
        "allOf": [_when(spec) for spec in EVENTS.values()],
        "$defs": {
            **{_slug(name): types[name].schema for name in sorted(types)},
            **{_event(spec): _keys(spec) for spec in EVENTS.values()},
        },
    }


def _when(spec: EventSpec) -> dict[str, Any]:
    return {
        "if": {"properties": {"ev": {"const": spec.name}}, "required": ["ev"]},
        "then": {"$ref": f"#/$defs/{_event(spec)}"},
    }


def _keys(spec: EventSpec) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": spec.doc}
    if spec.required:
        schema["required"] = list(spec.required)
    schema["properties"] = {
        key.name: {"$ref": f"#/$defs/{_slug(key.type.name)}", "description": key.doc}
        for key in spec.keys.values()
    }
    return schema


def _event(spec: EventSpec) -> str:
    return f"event-{spec.name}"


def _slug(type_name: str) -> str:
    return type_name.replace(" ", "-")
