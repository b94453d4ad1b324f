"""A case keeps its verdict whatever it looks like and whatever runs beside it."""

from __future__ import annotations

import pytest

from .test_variants_wellformed import ALL
from .transform import TRANSFORMS, variant
from .verdict import shortfalls

HEAVY = ("double", "load", "grow", "mirror", "private", "swap", "cut", "scale", "ids")
"""Transforms that change what happens around the fault, not only what it is called."""


@pytest.mark.parametrize("name", ALL)
def test_variants_keep_the_verdict(name: str) -> None:
    for seed in range(3):
        made = variant(ALL[name], f"verdict{seed}")
        assert not shortfalls(made), made.info["transforms"]


@pytest.mark.parametrize("name", ALL)
def test_company_does_not_hide_the_fault(name: str) -> None:
    made = variant(ALL[name], "company", [t for t in TRANSFORMS if t in HEAVY])
    assert not shortfalls(made)
