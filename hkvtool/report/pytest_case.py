"""A trace as a test: one file that fails as long as a check of it finds the same fault."""

from __future__ import annotations

from collections.abc import Iterable

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.jsonl import write_line
from hkvtool.model.rules import RULES
from hkvtool.model.text import shown

MOST_EVENTS = 500
"""Events of a test that somebody may still read."""

_FILE = '''"""{title}

{message}

Fix: {fix}.

With HKV_TRACE set to a trace of the same scenario, that one is judged instead of the events below:
record the fixed engine and run the test again.
"""

import io
import os

from hkvtool.analyzers import check
from hkvtool.model.jsonl import read_jsonl
from hkvtool.store import open_trace

TRACE = [
{lines}]


def judged():
    if "HKV_TRACE" in os.environ:
        with open_trace(os.environ["HKV_TRACE"]) as trace:
            return check(trace.events())
    return check(read_jsonl(io.BytesIO("\\n".join(TRACE).encode())))


def test_no_{name}():
    report = judged()
    assert "{code}" not in report.not_evaluable, "the trace lacks the evidence for {code}"
    assert not report.inconclusive, report.inconclusive
    found = [finding.message for finding in report.findings if finding.code == "{code}"]
    assert not found, "\\n".join(found)
'''


def pytest_case(events: Iterable[Event], finding: Finding) -> str:
    """The text of the test. Raises HkvError where the trace is too long to be one."""
    lines = [write_line(event) for event in events]
    if len(lines) > MOST_EVENTS:
        raise HkvError(
            f"{len(lines):,} events make no test that anybody reads; {MOST_EVENTS} are the most",
            hint="`hkvtool minimize` first",
        )
    rule = RULES[finding.code]
    return _FILE.format(
        title=f"{finding.code} {rule.name}.",
        message=_prose(finding.message),
        fix=_prose(rule.fix),
        lines="".join(f"    {line!r},\n" for line in lines),
        name=f"{finding.code.lower()}_{rule.name.replace('-', '_')}",
        code=finding.code,
    )


def _prose(text: str) -> str:
    """Text out of a trace that cannot end the docstring it stands in."""
    return shown(text).replace("\\", "\\\\").replace('"', "'")
