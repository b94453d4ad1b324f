"""A fleet in an object store: what is said of it is what is said of a folder."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Case

from hkvtool.fleet.instances import Instance, instances
from hkvtool.fleet.objects import below, is_remote, listed, name_of, plain
from hkvtool.recorder.recording import Recording

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same, in this process."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    return run


@pytest.fixture
def few(tmp_path: Path, cases: dict[str, Case]) -> Path:
    """Three cases, one right, and a recording."""
    root = tmp_path / "a few" / "fleet"
    for host, path in (("a", cases["A01"].bad), ("b", cases["B01"].bad), ("b", cases["A01"].good)):
        folder = root / f"host={host}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"{path.parent.name} {path.name}")
    (root / ".hidden").mkdir()
    shutil.copy(cases["A01"].bad, root / ".hidden")
    (root / "host=c").mkdir()
    recording = Recording.start(root / "host=c" / "rank1.hkv")
    assert isinstance(recording, Recording)
    with recording:
        recording.emit_dict({"ev": "trace", "format": "hkv/1"})
        recording.emit("reset")
    return root


def s3(tmp_path: Path) -> Iterator[str]:
    """A bucket of a server on this machine."""
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    import boto3

    # Servers of one process have their buckets in common.
    bucket = f"{tmp_path.parent.name}-{tmp_path.name}".lower().replace("_", "-")[-60:]
    server = moto.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    try:
        boto3.client(
            "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1"
        ).create_bucket(Bucket=bucket)
        yield f"s3://{bucket}/a%20few?scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    finally:
        server.stop()


def file(tmp_path: Path) -> Iterator[str]:
    """What is no object store, and read the same way."""
    (tmp_path / "store").mkdir()
    yield f"file://{tmp_path}/store"


@pytest.fixture(params=[file, s3], ids=["file", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "knows")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield from request.param(tmp_path)


def copied(folder: Path, uri: str) -> None:
    from pyarrow.fs import LocalFileSystem, copy_files

    from hkvtool.fleet.objects import opened

    system, path = opened(uri)
    system.create_dir(path, recursive=True)
    copy_files(
        str(folder), path, source_filesystem=LocalFileSystem(), destination_filesystem=system
    )


def said(printed: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(printed)
    report["trace"].pop("path")
    return report


def test_a_fleet_there_is_the_fleet_here(run: Run, few: Path, store: str) -> None:
    copied(few, store)
    assert [(i.name, i.host) for i in instances(store)] == [
        (i.name, i.host) for i in instances(few)
    ]
    there = run("check", store, "--format", "json")
    here = run("check", few, "--format", "json")
    assert there[0] == here[0] == 1, there[2]
    theirs, ours = said(there[1]), said(here[1])
    for one in (*theirs["trace"]["instances"], *ours["trace"]["instances"]):
        # A trace that was brought here says where it lay meanwhile.
        one.pop("path", None)
    assert theirs == ours
    assert run("why", store, "r2")[:2] == run("why", few, "r2")[:2]


def test_what_is_ingested_into_it_can_be_asked(
    run: Run, few: Path, store: str, tmp_path: Path
) -> None:
    sources = [one.path for one in instances(few)]
    kept = below(store, "kept")
    for target in (kept, str(tmp_path / "kept")):
        code, _, err = run("ingest", *sources, "-o", target, "--host", "h")
        assert code == 0, err
    assert [i.name for i in instances(kept)] == [i.name for i in instances(tmp_path / "kept")]
    text = (
        "SELECT instance, host, ev, count(*) AS n, max(pos) FROM event_log GROUP BY ALL "
        "ORDER BY ALL"
    )
    answers = [
        run("query", folder, text, "--format", "csv") for folder in (kept, tmp_path / "kept")
    ]
    assert answers[0] == answers[1]
    assert answers[0][0] == 0
    assert run("query", kept, "SELECT count(*) FROM instances", "--format", "csv")[1] == (
        "count_star()\n4\n"
    )
    assert run("query", kept, f"SELECT * FROM read_csv('{few}/x.csv')")[0] == 2
    # A second time nothing is replaced unless that is asked for.
    again = run("ingest", sources[0], "-o", kept, "--host", "h")
    assert again[0] == 3
    assert "exists" in again[2]
    assert run("ingest", sources[0], "-o", kept, "--host", "h", "--force")[0] == 0
    # From there it goes on to anywhere.
    on = run("ingest", *(i.path for i in instances(kept)), "-o", tmp_path / "on")
    assert on[0] == 0, on[2]


def test_what_is_not_there_is_told_in_a_sentence(run: Run, store: str, tmp_path: Path) -> None:
    code, _, err = run("check", below(store, "nothing"))
    assert code == 3
    assert "Traceback" not in err
    code, _, err = run("check", "nowhere://fleet")
    assert code == 3
    assert "nowhere://fleet cannot be opened" in err


def test_places_are_told_without_keys_and_options() -> None:
    uri = "s3://key:secret@bucket/a/b%20c?endpoint_override=x"
    assert is_remote(uri)
    assert plain(uri) == "s3://bucket/a/b%20c"
    assert name_of(uri) == "b c"
    assert below(uri, "host=a/r 1#.hkv") == (
        "s3://key:secret@bucket/a/b%20c/host=a/r%201%23.hkv?endpoint_override=x"
    )
    one = Instance.of(uri, "host=a/rank=3/x.parquet")
    assert (one.host, one.rank) == ("a", "3")
    assert not is_remote("/a:b/c")


def test_recordings_are_found_by_their_markers(store: str, tmp_path: Path) -> None:
    few = tmp_path / "few"
    inner = few / "x" / "r.hkv" / "snapshot-1"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "complete").touch()
    (inner.parent / "t.jsonl").touch()
    (few / "t.jsonl.gz").touch()
    copied(few, store)
    assert [i.name for i in instances(store)] == ["t.jsonl.gz", "x/r.hkv"]
    assert [i.name for i in instances(few)] == ["t.jsonl.gz", "x/r.hkv"]
    assert len(listed(store)) == 4


def test_a_name_that_is_not_in_utf8(run: Run, few: Path) -> None:
    shutil.copy(few / "host=a" / "A01 bad.jsonl", few / "odd\udcff.jsonl")
    code, _, err = run("check", f"file://{few.as_posix().replace(' ', '%20')}")
    assert code == 3 and "not in UTF-8" in err
    assert below("s3://b/p", "odd\udcff.jsonl") == "s3://b/p/odd%FF.jsonl"


def test_no_room_for_what_is_brought_here(
    run: Run, few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr("pyarrow.fs.copy_files", full)
    place = f"file://{few.as_posix().replace(' ', '%20')}/host=a/A01%20bad.jsonl"
    code, _, err = run("ingest", place, "-o", tmp_path / "out")
    assert code == 3 and "cannot be brought here: no space is left in" in err
    assert "hint: free some space, or have TMPDIR name" in err
