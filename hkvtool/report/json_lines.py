"""Reports as JSON, one object a line in the order of the traces: the contract of `check`."""

from __future__ import annotations

import json

from hkvtool.report.checked import Checked


def json_line(checked: Checked) -> str:
    """One trace; in plain ASCII, so that nothing in it reaches a terminal as it is."""
    if checked.report is None:
        return json.dumps({"trace": {"path": checked.name}, **checked.trouble})
    said = checked.report.as_json()
    said["trace"] = {**said["trace"], "path": checked.name}
    return json.dumps(said)
