"""Reports as workflow commands, which GitHub shows as annotations beside the code.

Source: "Workflow commands for GitHub Actions": ``::error file=...,line=...,title=...::message``,
with ``%``, CR and LF escaped, and in properties also ``:`` and ``,``. GitHub keeps ten of each
level a step, so findings of one rule and group are one annotation.
"""

from __future__ import annotations

from collections.abc import Iterator

from hkvtool.model.findings import Finding
from hkvtool.model.rules import RULES, Severity
from hkvtool.model.text import shown
from hkvtool.report.checked import Checked, alike, place

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github_lines(checked: Checked) -> Iterator[str]:
    """The annotations of one trace, the gravest first, and a notice with the ratios."""
    if checked.report is None:
        yield _command("error", checked, None, "trace cannot be read", checked.error)
        return
    for findings in alike(checked.roots):
        first = findings[0]
        title = f"{first.code} {RULES[first.code].name}"
        yield _command(_LEVELS[first.severity], checked, place(first), title,
                       _message(checked, findings))  # fmt: skip
    for said in checked.report.inconclusive:
        yield _command("warning", checked, None, "inconclusive", said)
    ratios = checked.report.ratios
    if ratios.asked:
        shares = [f"{100 * n / ratios.asked:.1f} %" for n in (ratios.matched, ratios.resumable)]
        lost = [f"{loss.tokens:,} tokens lost by {loss.code}" for loss in ratios.lost_by]
        text = f"match ratio {shares[0]}, resumable ratio {shares[1]}"
        yield _command("notice", checked, None, "KV cache", "; ".join([text, *lost[:4]]))


def _message(checked: Checked, findings: list[Finding]) -> str:
    first = findings[0]
    lines = [shown(first.message)]
    lines += [
        f"{role} {pos}: {text}".removesuffix(": ") for role, pos, text in checked.moments(first)
    ]
    lines.append(f"fix: {first.fix}")
    if first.caused:
        lines.append(f"{len(first.caused)} more follow from it")
    if len(findings) > 1:
        lines.append(f"and {len(findings) - 1} like it")
    return "\n".join(lines)


def _command(level: str, checked: Checked, pos: int | None, title: str, text: str) -> str:
    properties = [f"file={_property(checked.name)}"]
    if pos is not None and checked.lines:
        properties.append(f"line={pos}")
    elif pos is not None:
        title = f"{title} at event {pos}"
    properties.append(f"title={_property(title)}")
    return f"::{level} {','.join(properties)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(shown(text)).replace(":", "%3A").replace(",", "%2C")
