"""The JSON Schema and `check_keys` say the same of a line."""

from __future__ import annotations

import json

import pytest
from conftest import Case
from hypothesis import given
from jsonschema import Draft202012Validator
from strategies import Data, events, mutated

from hkvtool.model.events import check_keys
from hkvtool.model.schema import line_schema

VALIDATOR = Draft202012Validator(line_schema())
UNSAID = ("ends before it starts", "is not an integer", " for ")
"""What only `check_keys` says: order of a range, whole floats, lists of one length."""


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


@given(mutated())
def test_schema_and_check_agree(data: Data) -> None:
    problem = check_keys(data)
    valid = VALIDATOR.is_valid(data)
    if problem is None:
        assert valid
    elif valid:
        assert any(words in problem for words in UNSAID), problem


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
