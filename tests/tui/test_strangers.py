"""What somebody sees who has never seen it: long names, thousands of findings, nothing to show."""

from __future__ import annotations

from hkvtool.model.findings import Finding
from hkvtool.tui.finding_lines import finding_lines, list_lines
from hkvtool.tui.hit_lines import hit_lines
from hkvtool.tui.lines import named, plain
from hkvtool.tui.mosaic import DETAIL, View
from hkvtool.tui.words import help_lines, legend_lines
from tests.tui.conftest import Driver

LONG = "cmpl-2f1c9d0e-7a64-4c1e-9d7a-{:012d}-0"
GROUP = "full-attention-group-with-a-very-long-name.layers.0-63"


def finding(number: int, **said: object) -> Finding:
    return Finding(
        "HKV704", "it is released twice", [number], id=f"F{number}", group=GROUP,
        request=LONG.format(number), **said,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_name_keeps_both_of_its_ends() -> None:
    assert named("abcdef", 6) == "abcdef"
    assert named("abcdefghij", 6) == "abc…ij"
    assert [len(named("abcdefghij", width)) for width in range(1, 10)] == list(range(1, 10))


def test_the_rule_of_a_finding_is_told_before_whom_it_hits() -> None:
    for width in (46, 60, 80, 120):
        text = plain(list_lines([finding(n) for n in range(1, 10001)], width, finding(1)))
        first, *inner, last = text.splitlines()
        assert first.startswith("✗ F1   704 refcount ×10,000")
        assert "and 9,992 more like it" in last
        assert len({line.split()[1] for line in inner}) == len(inner) == 7
        assert max(map(len, text.splitlines())) <= width
        # Told apart by the end of their names.
        assert len({line.partition(" cmpl")[2] for line in inner}) == 7


def test_one_event_alone_is_told_in_all_of_the_width() -> None:
    only = finding(7, use=7, believed={"references": 1}, actual={"references": 0})
    text = plain(finding_lines(only, {}, [], 100, 7))
    assert "CHECK" not in text and "USE  at 7" in text
    assert "believed  references 1" in text and "true      references 0" in text


def test_a_legend_ends_where_there_is_no_more_room_and_help_has_all_of_it() -> None:
    view = View(width=40, zoom=DETAIL)
    whole = list(legend_lines(view, 300))[1].text
    for width in range(40, len(whole) + 1):
        told = list(legend_lines(view, width))[1].text
        assert len(told) <= width
        assert told == whole or (told.endswith("  …") and whole.startswith(told[:-1]))
        assert told != whole or width == len(whole)
    for colouring in ("form", "group", "request", "layer"):
        for width in (40, 72, 120):
            view = View(width=40, zoom=DETAIL, colouring=colouring)
            assert len(next(iter(legend_lines(view, width))).text.rstrip()) <= width
    for width in (40, 67, 120):
        text = plain(help_lines("map", width))
        assert max(map(len, text.splitlines())) <= width
        assert "events" in text.partition("map, block")[2].partition("Here")[0]
        assert all(f"  {row} " in text.partition("Time axis")[2] for row in ("match", "resumable"))
        assert all(f"  {mark}   " in text.partition("Marks")[2] for mark in "●○1~^!?·_")


def test_what_a_finding_costs_is_told(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        d.has("r2: of the 1,024 tokens that matched, 512 can be resumed")
        await d.press("3")
        d.has("r2 goes on from token 1,024 (1,024 of 1,300 tokens matched), but compressed group fa",
              "no block holds tokens 512")  # fmt: skip

    drive(cases["A01"].bad, talk)


def test_the_check_of_another_request_is_a_key_away(trace_of, drive) -> None:  # type: ignore[no-untyped-def]
    lines = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": "fa", "form": "compressed", "pool": "gpu", "block_tokens": 16},
        {"ev": "lookup", "req": "asks", "tokens": 32, "hit": {"fa": 0}, "blocks": {"fa": []}},
        {"ev": "admit", "req": "waits"},
    ]

    async def talk(d: Driver) -> None:
        await d.press("/")
        await d.type("waits")
        await d.press("3")
        d.has("Request waits has looked up or resumed nothing", "esc shows the last")
        await d.press("escape")
        d.has("asks matches 0 of 32 tokens: nothing to resume from", "not resumed yet")

    drive(trace_of(lines), talk)
    assert "No request has looked up" in plain(hit_lines(None, 80))


def test_glyphs_are_told_on_the_smallest_screen(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("1")
        d.has("● resumable, held", "○ and free", "1 not, by layer", "! in a finding")

    drive(cases["B10"].bad, talk, (80, 24))
