"""A probe in words, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.model.text import shown
from hkvtool.probe.judging import DIFFERS, INCONCLUSIVE, SAME

_VERDICTS = {
    SAME: "reuse changed no answer",
    DIFFERS: "reuse changes answers",
    INCONCLUSIVE: "inconclusive",
}


def report_lines(report: dict[str, Any]) -> Iterator[str]:
    """The report, a line each."""
    server, noise, seen = report["server"], report["noise"], report["sensitivity"]
    facts = [f"prompts as {server['prompts']}", f"salts {server['salts']}"]
    if server["block_tokens"]:
        facts.append(f"blocks of {server['block_tokens']} tokens")
    yield shown(f"{server['url']} · {server['model']} · {', '.join(facts)}")
    yield ""
    void = f", {noise['void']} void" if noise["void"] else ""
    jumped = f", {noise['differed']} beyond" if noise["differed"] else ""
    yield (
        f"noise         up to {noise['usual_nats']:.2g} nats in nine of ten comparisons without "
        f"reuse, {noise['largest_nats']:.2g} in all {noise['comparisons']}{void}; counted from "
        f"{noise['tolerance_nats']:.2g}{jumped}"
    )
    yield (
        f"sensitivity   {seen['told_apart']} of {seen['changed']} prompts with a changed block "
        "were told apart"
    )
    yield ""
    if report["patterns"]:
        yield (
            f"{'pattern':<10}{'compared':>9}{'reused':>8}{'divergent':>10}{'controls':>10}"
            f"{'95 % interval':>17}{'p':>9}{'sees from':>11}"
        )
    for p in report["patterns"]:
        low, high = p["interval"]
        yield (
            f"{p['pattern']:<10}{p['comparisons']:>9}{_told(p['reused']):>8}{p['divergent']:>10}"
            f"{p['control_divergent']:>5} of {p['controls']:<3}{low:>7.1%} – {high:<6.1%}"
            f"{p['p_adjusted']:>9.2g}{p['detectable']:>10.1%}"
        )
    for finding in report["findings"]:
        yield ""
        yield from finding_lines(finding)
    if report["could_not"]:
        yield ""
        for name, why in report["could_not"].items():
            yield shown(f"could not     {name}: {why}")
    load, summary = report["load"], report["summary"]
    if summary["idle"]:
        yield ""
        yield shown(f"idle          {summary['idle']}")
    failed = load["failed_comparisons"]
    yield ""
    yield (
        f"{load['requests']:,} requests, {load['tokens']:,} tokens, {load['seconds']:,.1f} s"
        + (f", {failed} comparisons failed" if failed else "")
        + (f"; stopped: {shown(summary['stopped'])}" if summary["stopped"] else "")
    )
    yield (
        f"{_VERDICTS[summary['verdict']]}: {summary['divergent']} of {summary['compared']} "
        f"comparisons diverged, {summary['confirmed']} findings confirmed"
    )


def _told(count: int | None) -> str:
    return "–" if count is None else str(count)


def pattern_line(p: dict[str, Any]) -> str:
    """The rate of one pattern."""
    low, high = p["interval"]
    return (
        f"{p['pattern']}: {p['divergent']} of {p['comparisons']} diverged "
        f"({low:.1%} – {high:.1%}), {p['control_divergent']} of {p['controls']} controls, "
        f"p {p['p_adjusted']:.2g}; a fault is seen from a rate of {p['detectable']:.1%} on"
    )


def finding_lines(f: dict[str, Any]) -> Iterator[str]:
    """One divergence."""
    state = "confirmed" if f["confirmed"] else "not confirmed"
    yield shown(f"{f['id']} {f['pattern']}, {state}: {f['boundary'] or 'as it was given'}")
    if f["kind"] == "leak":
        yield f"    leak      {f['cached_tokens']} tokens cached under a salt that nobody had used"
    elif f["kind"]:
        size = "tokens differ" if f["nats"] is None else f"{f['nats']:.4g} nats apart"
        words = f"at generated token {f['at_token']}, {size}"
        if f["first_other_token"] is not None:
            words += (
                f"; token {f['first_other_token']} is {f['said'][1]!r}, cold it is {f['said'][0]!r}"
            )
        yield shown(f"    differs   {words}")
    if f.get("cached_tokens") is not None and f["kind"] != "leak":
        yield f"    reused    {f['cached_tokens']} of its prompt tokens, says the server"
    if f.get("requests"):
        yield shown(f"    requests  {' '.join(f['requests'])}")
    r = f["repeated"]
    if r:
        yield (
            f"    repeated  {r['divergent']} of {r['runs']} with reuse, "
            f"{r['control_divergent']} of {r['controls']} without; "
            f"p {r['p']:.2g}, {r['p_adjusted']:.2g} corrected"
        )
    s = f["smallest"]
    yield shown(f"    smallest  {s['requests']} requests, {s['tokens']:,} tokens: {s['told']}")
    for name in ("replay", "snapshot", "trace", "trace_findings", "minimal", "no_snapshot"):
        if f.get(name):
            value = f[name]
            text = ", ".join(value) if isinstance(value, list) else value
            yield shown(f"    {name.replace('_', ' '):<9} {text}")
