"""Rules as they are named on a command line, and reports cut down to them."""

from __future__ import annotations

from collections.abc import Iterable

from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Report
from hkvtool.model.rules import RULES


def rule_codes(given: Iterable[str] | None) -> frozenset[str]:
    """Rules as given on the command line, by code or name; a family may be written 3xx."""
    found: set[str] = set()
    for text in (part for one in given or () for part in one.split(",")):
        wanted = text.strip().upper().removeprefix("HKV")
        codes = {
            code
            for code, rule in RULES.items()
            if wanted in (code[3:], rule.name.upper())
            or (wanted.endswith("XX") and code[3] == wanted[0])
        }
        if not codes:
            raise HkvError(f"there is no rule {text!r}", hint="see `hkvtool rules`")
        found |= codes
    return frozenset(found)


def keep_rules(report: Report, only: frozenset[str], ignore: frozenset[str]) -> None:
    """Keep what some rules say, and what could not be said of them."""
    if not only and not ignore:
        return

    def asked(code: str) -> bool:
        return (not only or code in only) and code not in ignore

    report.keep(lambda finding: asked(finding.code))
    report.not_evaluable = {c: n for c, n in report.not_evaluable.items() if asked(c)}
