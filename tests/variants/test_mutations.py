"""One fault in a long correct trace is found, and by its name."""

from __future__ import annotations

from random import Random

import pytest

from . import faults_around, faults_blocks, faults_transfers  # noqa: F401  they fill MUTATIONS
from .correct import Options, correct_trace
from .mutation import MUTATIONS
from .verdict import loud, report_on


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_fault_is_found(name: str) -> None:
    mutation = MUTATIONS[name]
    tried = 0
    for seed in range(12):
        events = correct_trace(seed, Options(**mutation.options))
        faulty = mutation.change(events, Random(seed))
        if faulty is None:
            continue
        codes = {f.code for f in loud(report_on(faulty)) if not f.cause}
        assert codes & mutation.codes, (seed, sorted(codes))
        tried += 1
        if tried == 3:
            return
    assert tried, "no trace offered a place for the fault"
