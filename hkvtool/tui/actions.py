"""Every action: its keys, its words, and where it makes sense. Keys, help, palette and docs are
made from this one table."""

from __future__ import annotations

from dataclasses import dataclass

VIEWS = ("map", "block", "hit", "findings", "requests", "transfers", "ratios", "events")
"""The views in the order of their keys."""


@dataclass(frozen=True)
class Action:
    """One action; `name` is the method ``action_<name>`` of the application, with its argument.

    `views` are those it is for, none for all. `short` is what the key bar says, if it is there.
    """

    name: str
    keys: str
    text: str
    section: str
    short: str = ""
    views: tuple[str, ...] = ()


ACTIONS = (
    *(
        Action(f"view('{view}')", str(number), f"go to {view}", "Views")
        for number, view in enumerate(VIEWS, 1)
    ),
    Action("help", "question_mark,f1", "say what is here and what the keys do", "Views", "help"),
    Action("next_event", "right_square_bracket", "next event", "Time", "event"),
    Action("last_event", "left_square_bracket", "event before", "Time"),
    Action("next_step", "greater_than_sign,full_stop", "next engine step", "Time", "step"),
    Action("last_step", "less_than_sign,comma", "engine step before", "Time"),
    Action("next_version", "right_curly_bracket", "next change of the block's content", "Time"),
    Action("last_version", "left_curly_bracket", "change of the block's content before", "Time"),
    Action("next_finding", "n", "next finding", "Time", "finding"),
    Action("last_finding", "N", "finding before", "Time"),
    Action("next_hit", "h", "next lookup or resume", "Time", "hit"),
    Action("last_hit", "H", "lookup or resume before", "Time"),
    Action("play", "space", "play, or pause", "Time", "play"),
    Action("faster", "right_parenthesis", "play faster", "Time"),
    Action("slower", "left_parenthesis", "play slower", "Time"),
    Action("first", "g", "beginning of the trace", "Time"),
    Action("last", "G", "end of the trace", "Time"),
    Action("jump", "colon", "jump to a position, a step (s504) or a time (12.5ms)", "Time", "jump"),
    Action("zoom_in", "plus,equals_sign", "zoom in", "Map", "zoom", ("map",)),
    Action("zoom_out", "minus", "zoom out", "Map", views=("map",)),
    Action("zoom_fit", "0", "zoom so that all pools fit", "Map", views=("map",)),
    Action("colouring", "c", "colour by form, group, request or failing layer", "Map", "colour",
           ("map",)),
    Action("filter", "f", "let through some blocks: group=fa req=r2 layer=3 …", "Map", "filter",
           ("map",)),
    Action("find", "slash", "find a block (gpu:13), request, finding or hash", "Look", "find"),
    Action("open", "enter", "open what the cursor is on", "Look"),
    Action("let_go", "escape", "let go of the filter, then of the finding", "Look"),
    Action("check", "r", "run every rule over the trace, or cancel it", "Look"),
    Action("confirm", "x", "confirm, explore, minimize, export the finding", "Look", "confirm",
           ("findings",)),
    Action("printed", "o", "what the program prints that `record --live` runs", "Look"),
    Action("copy_command", "y", "copy the command line that shows this", "Look"),
    Action("screenshot", "s", "save the screen as an SVG picture", "Look"),
    Action("theme", "t", "dark, light", "Look"),
    Action("quit", "q,ctrl+q,ctrl+c", "leave", "Look", "quit"),
)  # fmt: skip

KEY_NAMES = {
    "right_square_bracket": "]", "left_square_bracket": "[", "greater_than_sign": ">",
    "full_stop": ".", "less_than_sign": "<", "comma": ",", "right_curly_bracket": "}",
    "left_curly_bracket": "{", "question_mark": "?", "slash": "/", "colon": ":", "plus": "+",
    "equals_sign": "=", "minus": "-", "right_parenthesis": ")", "left_parenthesis": "(",
    "escape": "esc", "ctrl+q": "^q", "ctrl+c": "^c",
}  # fmt: skip
"""What the keys with longer names are labelled."""


def keys_of(action: Action) -> str:
    """The keys of an action as a person types them."""
    return " ".join(KEY_NAMES.get(key, key) for key in action.keys.split(","))
