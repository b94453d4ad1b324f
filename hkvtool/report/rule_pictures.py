"""A picture of each rule: its finding on the smallest trace that it fires on.

``python -m hkvtool.report.rule_pictures docs/reference/pictures`` draws them. Time goes down, a
column is a lane; the bar leads from the check to the use, dashed where no edge orders the two.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from html import escape
from pathlib import Path

from hkvtool.analyzers import check
from hkvtool.model.rules import RULES
from hkvtool.model.shipped import shipped
from hkvtool.report.narrate import lane, sentence
from hkvtool.report.story import Moment, Story, ends, facts_of
from hkvtool.report.telling import story_of
from hkvtool.store import open_trace

_WIDTH, _TOP, _ROW, _LINE, _LANE = 880, 16, 12, 17, 96
_EDGE, _GAP = 70, 28
_CHARACTER = 7.2
"""Width that a character of the text is counted for, rather too much."""

_SIDES = ("believed", "true")

_STYLE = """
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: #1f2933 }
.lane { font-weight: 600; text-anchor: middle } .pos { fill: #6b7785; text-anchor: end }
.label { fill: #6b7785 } .axis { stroke: #c5ccd3 } .dot { fill: #8a96a3 }
.change { fill: #b35900 } .telling { fill: #0b66c3 } .bar { stroke: #0b66c3; stroke-width: 2.5 }
.open { stroke: #b3261e; stroke-dasharray: 5 4 } .edge { fill: #b3261e } .said { font-weight: 600 }
.page { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e4e7eb } .pos, .label { fill: #9aa5b1 } .axis { stroke: #52606d }
.dot { fill: #9aa5b1 }
.change { fill: #ffb067 } .telling { fill: #6db3f8 } .bar { stroke: #6db3f8 }
.open { stroke: #ff8a80 } .edge { fill: #ff8a80 } .page { fill: #1b1f24 } }
"""


def stories() -> Iterator[tuple[str, Story]]:
    """The finding of each rule that ships with a trace it fires on."""
    for code in RULES:
        file = shipped("rules", f"{code}.fires.jsonl")
        if not file.is_file():
            continue
        with open_trace(str(file)) as trace:
            report = check(trace.events())
            found = next(f for f in report.findings if f.code == code)
            yield code, story_of(trace, report, found)


def write(folder: Path) -> None:
    """Draw every rule into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for code, story in stories():
        (folder / f"{code}.svg").write_text(picture(story), encoding="utf-8")


def picture(story: Story) -> str:
    """A story as SVG that needs nothing beside it, in light and in dark."""
    finding = story.finding
    lanes = list(dict.fromkeys(lane(m.event) for m in story.moments))
    text_at = _EDGE + _LANE * len(lanes) + _GAP
    body: list[str] = []
    y = _TOP
    for line in _wrapped(f"{finding.code}: {finding.message}", _WIDTH - 2 * _TOP):
        y += _LINE
        body.append(_text(_TOP, y, line, "said"))
    y += _ROW + _LINE
    head = y
    body += [_text(_column(i), y, name, "lane") for i, name in enumerate(lanes)]
    first, last = sorted(ends(finding))
    dots: dict[int, tuple[int, int]] = {}
    for m in story.moments:
        y += _ROW + _LINE
        x = _column(lanes.index(lane(m.event)))
        dots[m.event.pos] = (x, y - 4)
        body.append(_text(_EDGE - 28, y, str(m.event.pos), "pos"))
        body += _said(m, text_at, y)
        y += _LINE * (len(_words(m, text_at)) - 1)
        if finding.edge and m.event.pos == first:
            for line in _wrapped(f"no edge: {finding.edge}", _WIDTH - text_at - _TOP):
                y += _LINE
                body.append(_text(text_at, y, line, "edge"))
    end = y = y + _ROW
    for label, said in facts_of(finding):
        if label in _SIDES:
            y += _ROW
            for i, line in enumerate(_wrapped(said, _WIDTH - text_at - _TOP)):
                y += _LINE
                body += [_text(text_at, y, line, "")]
                body += [_text(_TOP, y, label, "label")] if not i else []
    axes = [
        f'<line class="axis" x1="{_column(i)}" x2="{_column(i)}" y1="{head + 6}" y2="{end}"/>'
        for i in range(len(lanes))
    ]
    bar = _bar(dots, first, last, missing=bool(finding.edge))
    marks = [_dot(m, *dots[m.event.pos], telling=m.event.pos in (first, last))
             for m in story.moments]  # fmt: skip
    size = f'width="{_WIDTH}" height="{y + _TOP}" viewBox="0 0 {_WIDTH} {y + _TOP}"'
    inside = "\n".join([*axes, *bar, *marks, *body])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>{escape(finding.message)}</title>\n<style>{_STYLE}</style>\n"
        f'<rect class="page" width="100%" height="100%"/>\n{inside}\n</svg>\n'
    )


def _column(number: int) -> int:
    return _EDGE + _LANE * number + _LANE // 2


def _words(moment: Moment, text_at: int) -> list[str]:
    return _wrapped(f"{moment.role}: {sentence(moment.event)}", _WIDTH - text_at - _TOP)


def _said(moment: Moment, text_at: int, y: int) -> Iterator[str]:
    for i, line in enumerate(_words(moment, text_at)):
        yield _text(text_at, y + i * _LINE, line, "")


def _wrapped(text: str, room: int) -> list[str]:
    return textwrap.wrap(text, max(20, int(room / _CHARACTER))) or [""]


def _text(x: int, y: int, said: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x}" y="{y}">{escape(said)}</text>'


def _bar(
    dots: dict[int, tuple[int, int]], first: int, last: int, *, missing: bool
) -> Iterator[str]:
    if first == last or first not in dots or last not in dots:
        return
    (x1, y1), (x2, y2) = dots[first], dots[last]
    kind = "bar open" if missing else "bar"
    yield f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _dot(moment: Moment, x: int, y: int, *, telling: bool) -> str:
    kind = "telling" if telling else "change" if moment.role == "change" else "dot"
    return f'<circle class="{kind}" cx="{x}" cy="{y}" r="{7 if telling else 5}"/>'


if __name__ == "__main__":
    write(Path(sys.argv[1]))
