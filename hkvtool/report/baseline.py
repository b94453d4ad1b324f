"""Findings that are known already: told by what they say, not by where they stand.

Positions, block ids, counts and names of requests differ from run to run; the rule, the group and
the words of the sentence do not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding, Report

_MOST_BYTES = 256 << 20
"""Of a baseline: a device never ends."""

_WORD = re.compile(r"[A-Za-z]+")


def fingerprint(code: str, group: str | None, message: str, request: str | None = None) -> str:
    """16 hexadecimal digits that stay the same as long as the fault does."""
    if request:
        message = message.replace(request, "#")
    # Names made of letters and digits (blocks, handles, hashes, requests) are names, not words.
    words = [w for w in message.split() if _WORD.fullmatch(w.strip(".,:;()"))]
    text = "|".join((code, group or "", " ".join(words)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint_of(finding: Finding) -> str:
    """The fingerprint of one finding."""
    return fingerprint(finding.code, finding.group, finding.message, finding.request)


def known_findings(path: str) -> frozenset[str]:
    """Fingerprints of what ``check --format json`` wrote to a file. Raises HkvError."""
    return frozenset(_read(path))


def _read(path: str) -> Iterator[str]:
    hint = "`hkvtool check --format json TRACE > FILE` makes one"
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as e:
        said = e.strerror if isinstance(e, OSError) else "it is no text"
        raise HkvError(f"cannot read the baseline {path}: {said}", hint=hint) from e
    count = 0
    for line in text.splitlines():
        if not line.strip():
            continue
        count += 1
        try:
            findings = json.loads(line)["findings"]
            for finding in findings:
                yield _told(finding)
        except (ValueError, TypeError, KeyError, RecursionError) as e:
            raise HkvError(f"{path} is no baseline", where=f"line {count}", hint=hint) from e
    if not count:
        raise HkvError(f"the baseline {path} is empty", hint=hint)


def _told(finding: Any) -> str:
    group, request = finding.get("group"), finding.get("request")
    return fingerprint(
        str(finding["code"]),
        None if group is None else str(group),
        str(finding["message"]),
        None if request is None else str(request),
    )


def leave_out(report: Report, known: frozenset[str]) -> int:
    """Take known root findings out of a report, with all that follows from them; says how many."""
    by_id = {f.id: f for f in report.findings}
    gone = {f.id for f in report.findings if not f.cause and fingerprint_of(f) in known}
    gone |= {f.id for f in report.findings if f.cause in gone and f.cause in by_id}
    roots = sum(1 for i in gone if not by_id[i].cause)
    report.findings = [f for f in report.findings if f.id not in gone]
    return roots
