"""The fixtures are found from a wheel and from a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hkvtool.model.shipped import shipped

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_file_is_found_and_read() -> None:
    assert shipped("cases", "S01", "bad.jsonl").read_bytes().startswith(b'{"ev": "trace"')


def test_what_is_not_there_is_a_path_all_the_same() -> None:
    assert not shipped("rules", "no-such.jsonl").is_file()


def test_a_checkout_finds_its_own() -> None:
    code = "from hkvtool.model.shipped import shipped; print(shipped('cases'))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert Path(run.stdout.strip()) == CHECKOUT / "fixtures" / "cases"
