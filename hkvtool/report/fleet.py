"""A fleet for a person: what was found how often and where, then each instance with its ratios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from hkvtool.model.rules import RULES, Severity
from hkvtool.model.text import shown

MOST_ROWS = 20
"""Rows of a table on the screen; a fleet has thousands of instances."""


@dataclass
class Kind:
    """Root findings of one rule, severity and group, wherever they are."""

    code: str
    severity: Severity
    group: str | None
    count: int = 0
    instances: list[str] = field(default_factory=list)
    first: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return RULES[self.code].name


def kinds(said: dict[str, Any]) -> list[Kind]:
    """The root findings put together, the gravest and then the most frequent first."""
    found: dict[tuple[str, str, str | None], Kind] = {}
    for finding in said["findings"]:
        if finding.get("cause"):
            continue
        key = finding["code"], finding["severity"], finding["group"]
        kind = found.setdefault(
            key, Kind(finding["code"], Severity(finding["severity"]), finding["group"])
        )
        kind.count += 1
        kind.first = kind.first or finding
        if finding["instance"] not in kind.instances:
            kind.instances.append(finding["instance"])
    return sorted(found.values(), key=lambda k: (-k.severity.rank, -k.count, k.code))


def share(part: int, whole: int) -> str:
    """A ratio in per cent; nothing where nothing was asked for."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def exchanged(blocks: dict[str, int]) -> str:
    """How much went between instances, and what is known of it."""
    text = f"{blocks['exports']:,} blocks exported, {blocks['loads']:,} loaded"
    told = {"failed": "failed", "right": "right", "wrong": "wrong",
            "own": "stored by the loader alone",
            "order_open": "of which the clocks leave open whether they came in time",
            "unknown_origin": "of unknown origin, not evaluable"}  # fmt: skip
    parts = [f"{blocks[key]:,} {words}" for key, words in told.items() if blocks[key]]
    return f"{text}: {', '.join(parts)}" if parts else text


_TOLD = {"key": "key", "weights": "weights", "layout": "layout", "codec": "codec",
         "version": "version", "kv_version": "indexer version", "size": "bytes a block",
         "fingerprint": "fingerprint", "load": "a load whose origin is known",
         "pool": "a pool that is named (--shared)"}  # fmt: skip


def compared(loads: dict[str, int]) -> str:
    """What both sides of the loads told."""
    found = [f"{_TOLD[name]} {loads[name]:,}" for name in _TOLD if loads.get(name)]
    return f"compared by {', '.join(found)}"


def lacking(said: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Rules between instances that could be asked of no load, by what was missing."""
    by_need: dict[str, list[str]] = {}
    for one in said["between"]["not_evaluable"]:
        needs = " or ".join(_TOLD[need] for need in one["needs"])
        by_need.setdefault(needs, []).append(one["code"])
    return list(by_need.items())


def ways(said: dict[str, Any]) -> list[str]:
    """By what instances were held against each other."""
    between = said["between"]
    found = [f"on {pool}" for pool in between["shared"]]
    found += [f"through {pool}" for pool in between["through"]]
    return found + (["from device to device"] if between["direct"] else [])


def fleet_lines(said: dict[str, Any]) -> Iterator[str]:
    """The merged report as lines."""
    about, ratios, summary = said["trace"], said["ratios"], said["summary"]
    number = len(about["instances"])
    noun = "instance" if number == 1 else "instances"
    yield f"{shown(about['path'])}: {number:,} {noun}, {about['events']:,} events"
    unread = [one for one in about["instances"] if "error" in one]
    if unread:
        yield ""
        yield f"{len(unread):,} of {number:,} {noun} could not be read"
    for one in unread[:MOST_ROWS]:
        yield f"  {shown(one['instance'])}: {shown(one['error'])}"
        for key in ("where", "hint"):
            if key in one:
                yield f"    {key}: {shown(one[key])}"
    found = kinds(said)
    for kind in found[:MOST_ROWS]:
        group = f" in {shown(kind.group)}" if kind.group else ""
        yield ""
        yield (f"{kind.severity} {kind.code} {kind.name}{group}: {kind.count:,} in "
               f"{len(kind.instances):,} of {number:,} instances")  # fmt: skip
        yield f"  {shown(kind.first['message'])}"
        yield f"  first: {shown(kind.first['id'])}"
    if len(found) > MOST_ROWS:
        yield ""
        yield f"and {len(found) - MOST_ROWS:,} kinds of findings more"
    if not said["findings"]:
        yield ""
        yield "no finding, as far as the evidence goes"
    yield ""
    asked = ratios["asked"]
    yield (f"match ratio {share(ratios['matched'], asked)}, resumable ratio "
           f"{share(ratios['resumable'], asked)} of {asked:,} tokens")  # fmt: skip
    for loss in ratios["lost_by"][:MOST_ROWS]:
        group = f" in {shown(loss['group'])}" if loss["group"] else ""
        yield f"  {loss['tokens']:,} tokens lost by {loss['code']}{group}"
    for needs, codes in blind(said):
        yield f"not evaluable without {shown(needs)}: {', '.join(codes)}"
    if said["between"]["rules"] or said["between"]["not_evaluable"]:
        rules = ", ".join(said["between"]["rules"]) or "no rule could be asked"
        yield f"between instances, {shown(', '.join(ways(said)))}: {rules}"
        if "blocks" in said["between"]:
            yield f"  {exchanged(said['between']['blocks'])}"
            if said["between"]["compared"]:
                yield f"  {compared(said['between']['compared'])}"
        for needs, codes in lacking(said):
            yield f"  not evaluable without {needs}: {', '.join(codes)}"
    else:
        yield (
            "between instances nothing was evaluated; --shared POOL names a tier that they share, "
            "--through one that lies above such, --direct is for P/D"
        )
    for why in said["inconclusive"][:MOST_ROWS]:
        yield f"inconclusive: {shown(why)}"
    counts = [(summary[str(s)], str(s)) for s in sorted(Severity, key=lambda s: -s.rank)]
    yield ", ".join(
        f"{n:,} {word}{'s' * (n != 1)}" for n, word in counts if n or word == Severity.ERROR
    )


def spread_lines(root: tuple[str, str], told: list[dict[str, Any]]) -> Iterator[str]:
    """What follows from one beginning in all instances: who read it, and what to purge where."""
    number = len({(one["instance"], r["request"]) for one in told for r in one["requests"]})
    noun = "request" if number == 1 else "requests"
    yield ""
    where = "instance" if len(told) == 1 else "instances"
    yield (f"what follows from {shown(root[0])}:{shown(root[1])}: {number:,} {noun} in "
           f"{len(told):,} {where}")  # fmt: skip
    for one in told:
        yield ""
        yield f"  {shown(one['instance'])}"
        for load in one["loaded"][:MOST_ROWS]:
            span = load["tokens"]
            tokens = (
                f", tokens {span[0]:,} to {span[1]:,} of {shown(load['request'])}" if span else ""
            )
            yield f"    loaded   at event {load['event']}{tokens}: {shown(load['message'])}"
        readers = [f"{shown(r['request'])} (event {r['first_read']})" for r in one["requests"]]
        if readers:
            yield f"    read by  {_some(readers)}"
        for copy in one["copies"][:MOST_ROWS]:
            yield f"    copied   at event {copy['pos']} to {shown(copy['pool'])}"
        for held in one["purge"]["blocks"]:
            blocks = _some([str(block) for block in held["blocks"]])
            yield f"    purge    blocks {blocks} of {shown(held['pool'])}"
        if one["purge"]["hashes"]:
            yield f"    purge    hashes {_some(one['purge']['hashes'])}"
    if any(one["loaded"] for one in told):
        yield ""
        yield (
            "  and in what lies between them, a folder or a store, the same tokens: until then "
            "others load it"
        )


def _some(names: list[str]) -> str:
    rest = len(names) - MOST_ROWS
    return ", ".join(names[:MOST_ROWS]) + (f" and {rest:,} more" if rest > 0 else "")


def blind(said: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What rules need that instances lack: the needs, and the rules with in how many."""
    number = len(said["trace"]["instances"])
    by_need: dict[str, list[str]] = {}
    for one in said["not_evaluable"]:
        where = "" if one["instances"] == number else f" (in {one['instances']:,})"
        by_need.setdefault(", ".join(one["needs"]), []).append(one["code"] + where)
    return list(by_need.items())


def fleet_html(said: dict[str, Any]) -> str:
    """The merged report as one HTML file that needs no network."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        # Names of files need not be in UTF-8, and those in traces are anybody's.
        finalize=lambda value: shown(value) if isinstance(value, str) else value,
    )  # fmt: skip
    template = files("hkvtool.report").joinpath("fleet.html").read_text(encoding="utf-8")
    found = Counter(f["instance"] for f in said["findings"] if not f.get("cause"))
    first = sorted(
        said["trace"]["instances"],
        key=lambda one: ("error" not in one, -found[one["instance"]], one["instance"]),
    )
    return environment.from_string(template).render(
        said=said, kinds=kinds(said), share=share, instances=first, blind=blind(said),
        exchanged=exchanged, compared=compared, lacking=lacking(said), ways=ways(said),
    )  # fmt: skip
