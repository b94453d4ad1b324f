"""Folders for a time are gone with their process, killed or not; nothing else is ever removed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hkvtool.model.errors import HkvError
from hkvtool.store.destination import Destination
from hkvtool.store.scratch import LOCK, Scratch, Spool, sweep

HOLDS = """
import sys
from hkvtool.store.scratch import Scratch
folder = Scratch()
open(folder.name + "/data", "w").close()
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def begun() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_taken_away_and_what_a_running_one_has_is_not(
    place: Path,
) -> None:
    (killed, left), (runs, kept) = begun(), begun()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        sweep(str(place))
        assert not left.exists()
        assert (kept / "data").exists()
    finally:
        runs.communicate("")
    assert not kept.exists()


def test_it_is_gone_when_it_is_left(place: Path) -> None:
    with Scratch() as folder:
        assert (Path(folder) / LOCK).exists()
        assert Path(folder).stat().st_mode & 0o077 == 0
        sweep(str(place))
        assert Path(folder).exists()
    assert not list(place.iterdir())


def abandoned(path: Path) -> Path:
    """As a process leaves it that was killed."""
    path.mkdir(mode=0o700)
    lock = path / LOCK
    lock.touch(mode=0o600)
    (path / "data").write_text("")
    return path


def test_nothing_that_is_not_surely_ours_is_touched(place: Path) -> None:
    outside = abandoned(place / "outside")
    (place / "hkvtool-linked00").symlink_to(outside)
    strange = abandoned(place / "hkvtool-not-ours")
    no_lock = place / "hkvtool-nolock00"
    no_lock.mkdir(mode=0o700)
    linked = place / "hkvtool-lnklock0"
    linked.mkdir(mode=0o700)
    (linked / LOCK).symlink_to(outside / LOCK)
    shared = abandoned(place / "hkvtool-shared00")
    shared.chmod(0o755)
    plain = place / "hkvtool-plain000"
    plain.write_text("")
    before = {p: sorted(os.listdir(p)) for p in (outside, strange, no_lock, linked, shared)}
    sweep(str(place))
    assert {p: sorted(os.listdir(p)) for p in before} == before
    assert plain.exists() and (place / "hkvtool-linked00").is_symlink()


def test_a_link_inside_is_removed_and_not_followed(place: Path) -> None:
    outside = abandoned(place / "outside")
    (abandoned(place / "hkvtool-abcdef01") / "link").symlink_to(outside)
    sweep(str(place))
    assert not (place / "hkvtool-abcdef01").exists()
    assert (outside / "data").exists()


def test_a_place_that_is_none_is_no_error(place: Path) -> None:
    with pytest.raises(OSError):
        sweep(str(place / "none"))
    with Scratch() as folder:
        assert Path(folder).parent == place


def test_where_there_is_no_room_for_what_goes_away_again_it_is_said_how_to_make_some() -> None:
    with Scratch() as folder:
        failure = Destination(Path(folder) / "t.duckdb").failure(OSError(errno.ENOSPC, "full"))
    assert "TMPDIR" in failure.hint and "-o" not in failure.hint


def test_a_file_that_there_is_no_room_for_is_named(tmp_path: Path) -> None:
    target = tmp_path / "small.jsonl"
    with pytest.raises(HkvError, match=r"cannot write .*small\.jsonl: full"), Destination(target):
        raise OSError(errno.ENOSPC, "full")
    assert list(tmp_path.iterdir()) == []


def test_what_is_put_aside_is_taken_away_after_a_kill_too(place: Path) -> None:
    spool = Spool()
    spool.file.write(b"x" * 10)
    spool.file.flush()
    assert Path(spool.path).read_bytes() == b"x" * 10
    os.close(spool._lock)
    spool._lock = -1
    sweep(str(place))
    assert not Path(spool.name).exists()
    spool.cleanup()
