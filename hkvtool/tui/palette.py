"""What things look like: colours that people who are colour-blind tell apart, letters and glyphs
that say the same without colour.

The form colours are those of Okabe and Ito, lightened where they stand on black.
"""

from __future__ import annotations

from functools import cache

from rich.color import Color, blend_rgb
from rich.color_triplet import ColorTriplet
from rich.style import Style

from hkvtool.model.forms import Form

FORMS = (Form.COMPRESSED, Form.TAIL, Form.SWA, Form.INDEXER, Form.RECURRENT, Form.ON_DISK)
"""Forms by number, as `hkvtool.state.overview` has them."""

LETTERS = "CTSIRD"
"""A letter a form: upper case where a request could resume from the block, lower case where not."""

HUES = ("#56b4e9", "#e69f00", "#1fb58f", "#cc79a7", "#f0e442", "#93a1b0", "#e8743b", "#b5c99a")
"""The colours of the forms, and two more for where other things than forms are coloured."""

SHADES = 4
"""Shades of each hue: the newest content first."""

_STRENGTH = (1.0, 0.78, 0.6, 0.44)

HELD, FREE, PENDING, EMPTY, UNSURE, PINNED, RESERVED, FAULT = "●", "○", "~", "·", "?", "^", "_", "!"
"""Glyphs. In place of the first two a digit says which layer of validation fails."""

GOOD, BAD, WARN, INFO = "#3fc380", "#ff6b5e", "#ffb347", "#7db7ff"


class Palette:
    """Styles on a dark or a light background."""

    def __init__(self, dark: bool = True) -> None:
        self.dark = dark
        self.background = "#11151a" if dark else "#fbfbf9"
        self.foreground = "#d5dae0" if dark else "#1d2329"
        self.faint = "#7e8894" if dark else "#68717c"
        self.edge = "#3a434e" if dark else "#c9ced4"
        self.raised = "#1c2229" if dark else "#eceef0"
        self.accent = self._ink(INFO)

    @cache  # noqa: B019 (there are two of them, for good)
    def role(self, role: str) -> Style:
        """The style of a span's role; `form:swa` is the colour of a form, `hue:3` a hue."""
        name, _, rest = role.partition(":")
        if name == "form":
            return Style(color=self._ink(HUES[[str(f) for f in FORMS].index(rest)]), bold=True)
        if name == "solid":
            back = self._blend(HUES[[str(f) for f in FORMS].index(rest)], _STRENGTH[1])
            return Style(color=self._on(back), bgcolor=back)
        if name == "hue":
            return Style(color=self._ink(HUES[int(rest) % len(HUES)]))
        if name == "cell":
            return self.cells()[int(rest)]
        found = {
            "": Style(color=self.foreground),
            "dim": Style(color=self.faint),
            "label": Style(color=self.faint),
            "edge": Style(color=self.edge),
            "bold": Style(color=self.foreground, bold=True),
            "title": Style(color=self.foreground, bold=True, underline=False),
            "good": Style(color=self._ink(GOOD)),
            "bad": Style(color=self._ink(BAD), bold=True),
            "warn": Style(color=self._ink(WARN)),
            "info": Style(color=self._ink(INFO)),
            "key": Style(color=self._ink(INFO), bold=True),
            "chosen": Style(color=self.background, bgcolor=self._ink(INFO), bold=True),
            "cursor": Style(reverse=True, bold=True),
            "bar": Style(color=self.foreground, bgcolor=self.raised),
            "bar-dim": Style(color=self.faint, bgcolor=self.raised),
            "bar-bold": Style(color=self.foreground, bgcolor=self.raised, bold=True),
            "bar-bad": Style(color=self._ink(BAD), bgcolor=self.raised, bold=True),
            "fault": Style(color="#ffffff", bgcolor="#b3261e", bold=True),
        }
        return found.get(role, found[""])

    def base(self) -> Style:
        """What an empty place looks like."""
        return Style(color=self.foreground, bgcolor=self.background)

    @cache  # noqa: B019
    def cells(self) -> tuple[Style, ...]:
        """Styles of map cells by number; see `hkvtool.tui.cells`."""
        solid, hollow = [], []
        for hue in HUES:
            for strength in _STRENGTH:
                back = self._blend(hue, strength)
                solid.append(Style(color=self._on(back), bgcolor=back, bold=strength == 1.0))
                hollow.append(Style(color=self._ink(hue), bgcolor=self._blend(hue, 0.14)))
        rest = [
            Style(color=self.edge),  # empty
            Style(color=self.edge, dim=False),  # never named
            Style(color=self.faint),  # uncertain
            Style(color="#ffffff", bgcolor="#b3261e", bold=True),  # named by a finding
            Style(color=self.edge),  # filtered out
            Style(color=self.background, bgcolor=self.foreground, bold=True),  # under the cursor
        ]
        return (*solid, *hollow, *rest)

    def _ink(self, colour: str) -> str:
        """A colour as text: darker on a light background."""
        return colour if self.dark else _mixed(colour, "#000000", 0.42)

    def _blend(self, colour: str, strength: float) -> str:
        return _mixed(self.background, colour, strength)

    def _on(self, back: str) -> str:
        triplet = Color.parse(back).triplet
        assert triplet is not None
        bright = (0.299 * triplet.red + 0.587 * triplet.green + 0.114 * triplet.blue) / 255
        return "#0b0d10" if bright > 0.5 else "#f3f5f7"


def _mixed(one: str, other: str, share: float) -> str:
    first, second = Color.parse(one).triplet, Color.parse(other).triplet
    assert first is not None and second is not None
    mixed: ColorTriplet = blend_rgb(first, second, share)
    return mixed.hex


DARK, LIGHT = Palette(True), Palette(False)
