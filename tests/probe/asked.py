"""Probing a stub as the command line does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hkvtool.cli.app import main
from probe.stub import Stub, serving


def asked(stub: Stub, capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON report of `hkvtool probe`, with a seed."""
    with serving(stub) as url:
        code = main(["probe", url, "--seed", "7", "--format", "json", *args])
    out, err = capsys.readouterr()
    assert out, err
    report: dict[str, Any] = json.loads(out)
    return code, report
