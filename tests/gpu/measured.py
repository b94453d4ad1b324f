"""The section of the docs that a run's results make."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"


def section(found: dict[str, Any]) -> str:
    """Markdown of what was measured; of a step that was not run, nothing."""
    results = {step: about["found"] for step, about in found.items()
               if step != "seconds" and about["found"] is not None}  # fmt: skip
    makers = {"environment": _environment, "bandwidth": _bandwidth, "equal": _equal,
              "streams": _streams, "replays": _replays, "sanitized": _sanitized}  # fmt: skip
    parts = [make(results[step]) for step, make in makers.items() if step in results]
    return "\n\n".join(part if part.startswith("|") else textwrap.fill(part, 100, break_on_hyphens=False)
                       for text in parts for part in text.split("\n\n"))  # fmt: skip


def put(docs: Path, found: dict[str, Any]) -> None:
    """Write the section between its marks."""
    text = docs.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{docs} has no marks {BEGIN} and {END} to write between")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    docs.write_text(f"{before}{BEGIN}\n{section(found)}\n{END}{after}")


def _environment(found: dict[str, Any]) -> str:
    versions = found["versions"]
    return (
        f"On one {found['device']} ({found['processors']} processors, "
        f"{found['memory'] / (1 << 30):.0f} GiB, capability {found['capability']}), "
        f"torch {versions['torch']}, CUDA {found['cuda']}, triton {versions['triton']}, "
        f"Python {found['python']}."
    )


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _shares(found: dict[str, dict[str, float]]) -> str:
    names = list(next(iter(found.values())))
    lines = [_row(["layout", *names]), _row(["---"] * (len(names) + 1))]
    lines += [_row([layout, *(f"{shares[name]:.2f}" for name in names)])
              for layout, shares in found.items()]  # fmt: skip
    return "\n".join(lines)


def _bandwidth(found: dict[str, Any]) -> str:
    tops = ", ".join(f"{name} {top / 1e9:,.0f} GB/s" for name, top in found["ceilings"].items())
    blocks = "; ".join(f"{name} {share:.2f}" for name, share in found["blocks"].items())
    codes = ", ".join(f"{name} {rate / 1e9:,.0f} GB/s" for name, rate in found["codes"].items())
    return (
        f"Ceilings of the same run: {tops}. Shares of them, counting every byte that an operation "
        "is given and gives (rows, their places, stamps, verdicts); `verify` and `fingerprint` are "
        "held against a read, `zero` against a fill, the others against a copy:\n\n"
        f"{_shares(found['layouts'])}\n\n"
        f"Whole pages, in random order: {blocks}. No ceiling is claimed for codes: {codes}."
    )


def _equal(found: dict[str, Any]) -> str:
    wrong = sum(len(one["wrong"]) for one in found.values())
    count = sum(one["geometries"] for one in found.values())
    return f"Kernels against references on {count} random geometries: {wrong} differ."


def _streams(found: dict[str, Any]) -> str:
    runs = found["runs"]
    lines = [_row(["race", "without the edge", "with it"]), _row(["---"] * 3)]
    lines += [_row([name, f"{arms['fault']} of {runs}", f"{arms['control']} of {runs}"])
              for name, arms in found.items() if name != "runs"]  # fmt: skip
    return "Runs that read wrong bytes:\n\n" + "\n".join(lines)


def _replays(found: dict[str, Any]) -> str:
    whole, cases = found["whole"], found["cases"]
    same = sum(one["same"] for one in whole.values())
    verdicts = ", ".join(f"{count} {name}" for name, count in cases["verdicts"].items())
    return (
        f"Whole replays on the device: {len(whole)} traces, {same} the same as on the CPU. Of the "
        f"cases' {cases['findings']} findings: {verdicts}; {len(cases['not as on the CPU'])} "
        f"otherwise than on the CPU, {cases['cases not run']} cases not run for want of time. "
        f"Graphs captured: {found['graphs captured']}."
    )


def _sanitized(found: dict[str, Any]) -> str:
    if "skipped" in found:
        return f"Under a memory checker: not run ({found['skipped']})."
    said = "; ".join(f"{family}: {' '.join(one['said']).strip('= ')}"
                     for family, one in found.items())  # fmt: skip
    return re.sub(r"=+ ", "", f"Under compute-sanitizer: {said}.")
