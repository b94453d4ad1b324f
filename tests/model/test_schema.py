"""The JSON Schema and `check_keys` say the same of a line."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from conftest import Case
from hypothesis import given
from jsonschema import Draft202012Validator
from strategies import Data, events, mutated

from hkvtool.model.events import check_keys
from hkvtool.model.schema import line_schema

VALIDATOR = Draft202012Validator(line_schema())
UNSAID = re.compile(r"ends before it starts|\d+ \w+ for \d+ \w+")
"""What only `check_keys` says: the order of a range, lists of one length."""


def whole_floats(value: Any) -> bool:
    """Whether there is a `1.0` in it: an integer to JSON Schema, and to `check_keys` none."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(map(whole_floats, value))
    return isinstance(value, float) and value.is_integer()


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(line_schema())


def test_every_case_validates(case: Case) -> None:
    for arm in case.arms:
        for number, line in enumerate(arm.read_text().splitlines(), 1):
            malformed = (case.id, arm.name, number) == ("S23", "bad.jsonl", 13)
            assert VALIDATOR.is_valid(json.loads(line)) is not malformed, (arm, number)


@given(events())
def test_what_the_table_allows_validates(data: Data) -> None:
    assert VALIDATOR.is_valid(data)


@given(mutated().filter(lambda data: not whole_floats(data)))
def test_schema_and_check_agree(data: Data) -> None:
    problem = check_keys(data)
    valid = VALIDATOR.is_valid(data)
    if problem is None:
        assert valid
    elif valid:
        assert UNSAID.search(problem), problem


def test_whole_floats_are_refused_by_check_alone() -> None:
    data = {"ev": "alloc", "blocks": [1.0]}
    assert VALIDATOR.is_valid(data)
    assert check_keys(data) == "alloc: `blocks` [0] is not an integer"


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"ev": "evict"},
        {"ev": "alloc"},
        {"ev": "alloc", "blocks": [True]},
        {"ev": "alloc", "blocks": [1 << 62]},
        {"ev": "pool", "pool": "p", "medium": "tape", "blocks": 1},
        {"ev": "remap", "pool": "p", "map": {"x": 1}},
        {"ev": "lease", "op": "write", "handle": "h"},
    ],
)
def test_a_wrong_line_fails(data: object) -> None:
    assert not VALIDATOR.is_valid(data)
