"""`hkvtool listen` and `hkvtool import --from`, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from hkvtool.cli.app import main
from hkvtool.model.errors import Exit
from hkvtool.recorder.launcher import SealerProcess
from hkvtool.store import open_trace
from importers import samples as made

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hkvtool(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")

    def run(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(args)
        return code, *capsys.readouterr()

    return run


class Publisher:
    """Publishes numbered batches on the loopback."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        # As a PUB socket, and it says who has subscribed.
        self._socket = self._context.socket(zmq.XPUB)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.number = 0

    def publish(self, *events: Any, lost: bool = False) -> None:
        data = msgpack.packb([time.time(), list(events), 0])
        if not lost:
            self.send(self.number.to_bytes(8, "big"), data)
        self.number += 1

    def send(self, *frames: bytes) -> None:
        self._socket.send_multipart([b"kv", *frames])

    def subscribed(self) -> None:
        """Wait until somebody listens: what is sent before is not heard."""
        assert self._socket.poll(60_000) and self._socket.recv() == b"\x01"

    def close(self) -> None:
        self._context.destroy(linger=500)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    made = Publisher()
    yield made
    made.close()


def stored(name: int) -> dict[str, Any]:
    return {"type": "BlockStored", "block_hashes": [name], "medium": "GPU", "group_idx": 0}


def listen(publisher: Publisher, folder: Path, *args: str) -> subprocess.Popen[str]:
    """A listener that hears what is published."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hkvtool", "listen", publisher.endpoint, "-o", "t.duckdb", *args],
        cwd=folder, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "100"},
    )  # fmt: skip
    assert process.stderr is not None
    assert "listening on" in process.stderr.readline()
    publisher.subscribed()
    return process


def recorded(folder: Path, **kinds: int) -> None:
    """Wait until so many events were recorded."""
    end = time.monotonic() + 60
    while True:
        with open_trace(folder / "t.hkv") as trace:
            heard = Counter(trace.kinds)
        if heard >= Counter(kinds):
            return
        assert time.monotonic() < end, heard
        time.sleep(0.05)


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_listening_until_it_is_stopped(
    publisher: Publisher, tmp_path: Path, hkvtool: Run, ends: signal.Signals
) -> None:
    process = listen(publisher, tmp_path, "--patience", "0.1s")
    for number in range(6):
        publisher.publish(stored(number), lost=number == 3)
    publisher.send(b"no number", b"")
    publisher.send((6).to_bytes(8, "big"), b"\xc1hostile")
    recorded(tmp_path, wire=5, dropped=3)
    process.send_signal(ends)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "6 batches; 5 stored" in said and "1 never came" in said
    assert "frames of 2, 9, 0 bytes is no batch" in said and "offset 0: batch 6" in said
    assert "no replay socket" in said and "hkvtool record" in said
    assert sorted(os.listdir(tmp_path)) == ["t.duckdb"]
    code, out, _ = hkvtool("check", str(tmp_path / "t.duckdb"), "--format", "json")
    report = json.loads(out)
    assert code == Exit.INCONCLUSIVE
    assert {f["code"] for f in report["findings"]} == {"HKV903"}
    assert "HKV101" in {e["code"] for e in report["not_evaluable"]}
    with open_trace(tmp_path / "t.duckdb") as trace:
        assert trace.meta["evidence"] == ["wire"]
        assert trace.kinds["wire"] == 5 and trace.kinds["dropped"] == 3


def test_what_a_plain_consumer_gets_is_judged(
    publisher: Publisher, tmp_path: Path, hkvtool: Run
) -> None:
    process = listen(publisher, tmp_path, "--as-received")
    for number in range(5):
        publisher.publish(stored(number), lost=number == 2)
    recorded(tmp_path, wire=4)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    code, out, _ = hkvtool("check", str(tmp_path / "t.duckdb"), "--format", "json")
    assert code == Exit.FINDINGS
    assert {f["code"] for f in json.loads(out)["findings"]} == {"HKV901"}


def test_one_key_gives_one_name(publisher: Publisher, tmp_path: Path, hkvtool: Run) -> None:
    """What is heard under a key and what is imported under it compare."""
    (tmp_path / "key").write_bytes(b"k" * 32)
    process = listen(publisher, tmp_path, "--hash-key", "key")
    publisher.publish(stored(0xF1E2D3C4B5A69788))
    recorded(tmp_path, wire=1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    source, target = tmp_path / "dynamo.jsonl", tmp_path / "d.jsonl"
    source.write_bytes(made.dynamo())
    key = str(tmp_path / "key")
    assert hkvtool("import", str(source), "-o", str(target), "--hash-key", key)[0] == 0
    imported = json.loads(target.read_text().splitlines()[1])["hashes"][0]
    with open_trace(tmp_path / "t.duckdb") as trace:
        heard = [e["hashes"] for e in trace.events(kinds={"wire"})]
    assert heard == [[imported]]


def test_where_nothing_is_published_nothing_is_left(tmp_path: Path, hkvtool: Run) -> None:
    target = str(tmp_path / "t.duckdb")
    code, _, err = hkvtool("listen", "tcp://127.0.0.1:9", "--duration", "0.2s", "-o", target)
    assert (
        code == Exit.UNREADABLE and "nothing was published" in err and "--kv-events-config" in err
    )
    assert "where: tcp://127.0.0.1:9: Connection refused" in err
    assert os.listdir(tmp_path) == []


def test_who_cannot_wait_for_the_end_is_told_what_is_there(
    tmp_path: Path, hkvtool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = SealerProcess.end

    def interrupted(self: SealerProcess) -> str:
        sealed(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(SealerProcess, "end", interrupted)
    target, kept = str(tmp_path / "t.duckdb"), tmp_path / "t.hkv"
    code, _, err = hkvtool("listen", "tcp://127.0.0.1:9", "--duration", "0.2s", "-o", target)
    assert code == Exit.INTERRUPTED and f"{kept} is kept" in err
    assert f"hint: hkvtool ingest {kept} -o {target}" in err
    assert os.listdir(tmp_path) == ["t.hkv"]


def test_where_no_batch_is_published_nothing_is_left(publisher: Publisher, tmp_path: Path) -> None:
    process = listen(publisher, tmp_path)
    for _ in range(3):
        publisher.send(b"no number", b"")
    recorded(tmp_path, dropped=3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.UNREADABLE
    assert "3 messages came, and none is a batch of KV events" in said
    assert said.count("frames of 2, 9, 0 bytes is no batch") == 1 and "--replay" in said
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["127.0.0.1:5557"], "is no endpoint"),
        (["tcp://127.0.0.1:99999"], "is no endpoint"),
        (["tcp://127.0.0.1"], "is no endpoint"),
        (["ipc:///tmp/\udcff"], "is no endpoint"),
        ([","], "no endpoint is named"),
        (["tcp://*:5557"], "is what a publisher binds to"),
        (
            ["tcp://127.0.0.1:9", "--replay", "tcp://127.0.0.1:9,tcp://127.0.0.1:9"],
            "2 replay sockets",
        ),
        (["tcp://127.0.0.1:9", "-o", "x.txt"], "no trace is called so"),
        (["tcp://127.0.0.1:9", "--duration", "soon"], "not a time"),
    ],
)
def test_what_makes_no_sense_is_told(
    hkvtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = hkvtool("listen", *args)
    assert code == Exit.USAGE and what in err and os.listdir(tmp_path) == []


@pytest.mark.parametrize("lacking", ["zmq", "msgpack"])
def test_what_must_be_installed_is_told(
    hkvtool: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    monkeypatch.setitem(sys.modules, lacking, None)
    monkeypatch.chdir(tmp_path)
    code, _, err = hkvtool("listen", "tcp://127.0.0.1:9", "--duration", "0.1s")
    assert code == Exit.USAGE and "hkvtool[listen]" in err and os.listdir(tmp_path) == []
    if lacking == "msgpack":
        (tmp_path / "x.lct").write_bytes(made.lmcache_events())
        code, _, err = hkvtool("import", "x.lct")
        assert code == Exit.USAGE and "hkvtool[listen]" in err and os.listdir(tmp_path) == ["x.lct"]


@pytest.mark.parametrize("sample", [*made.FILES, "vllm-cache"])
def test_import_says_what_it_took_it_for(
    sample: str, samples: Path, hkvtool: Run, tmp_path: Path
) -> None:
    target = str(tmp_path / "t.duckdb")
    code, _, err = hkvtool("import", str(samples / sample), "-o", target)
    assert code == 0 and f"{target}: " in err
    if sample != "mooncake.jsonl":
        assert ", from " in err
    if sample == "vllm-cache":
        assert "misnamed: " in err and "does not belong in fff/20" in err
    code, out, _ = hkvtool("info", target)
    assert code == 0 and "malformed" not in out
    again, _, err = hkvtool("import", str(samples / sample), "-o", target)
    assert again == Exit.USAGE and "exists already" in err


def test_the_default_name_is_beside_the_source(hkvtool: Run, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_bytes(made.dynamo())
    made.cache_files(tmp_path / "kv")
    assert hkvtool("import", str(tmp_path / "d.jsonl"))[0] == 0
    assert hkvtool("import", f"{tmp_path / 'kv'}/")[0] == 0
    assert {"d.duckdb", "kv.duckdb"} <= set(os.listdir(tmp_path))


def test_a_format_can_be_named(hkvtool: Run, samples: Path, tmp_path: Path) -> None:
    source, target = str(samples / "dynamo.jsonl"), str(tmp_path / "t.duckdb")
    code, _, err = hkvtool("import", source, "-o", target, "--from", "nothing")
    assert code == Exit.USAGE and "there is no format 'nothing'" in err and "trtllm" in err
    code, _, err = hkvtool("import", source, "-o", target, "--from", "lmcache")
    assert code == Exit.UNREADABLE and "is no LMCache trace" in err and "offset" in err
    assert os.listdir(tmp_path) == []
    # As hkv/1 none of its lines is an event, which is kept and told as such.
    code, _, err = hkvtool("import", source, "-o", target, "--from", "hkv")
    assert code == 0 and "malformed" in err


def test_several_of_another_format_are_refused(hkvtool: Run, samples: Path, tmp_path: Path) -> None:
    source = str(samples / "dynamo.jsonl")
    code, _, err = hkvtool("import", source, source, "-o", str(tmp_path / "t.duckdb"))
    assert code == Exit.USAGE and "one at a time" in err


@pytest.mark.parametrize("view", [["why", "{}", "r1"], ["events", "{}"], ["ratios", "{}"], ["tui", "{}", "--screenshot", "{}.svg"]])  # fmt: skip
@pytest.mark.parametrize("sample", [*sorted(set(made.FILES) - {"mooncake.jsonl"}), "vllm-cache"])
def test_every_view_opens_what_was_imported(
    sample: str, view: list[str], samples: Path, hkvtool: Run, tmp_path: Path
) -> None:
    target = str(tmp_path / "t.duckdb")
    assert hkvtool("import", str(samples / sample), "-o", target)[0] == 0
    code, _, err = hkvtool(*(part.format(target) for part in view))
    assert code in (0, 1, 2, 3, 4), err
    assert "bug in hkvtool" not in err


@pytest.mark.parametrize("name", ["kv-events", "dynamo", "trtllm"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff\x1f\n" * 50, b"[" * 100_000 + b"\n"])
def test_a_file_of_which_nothing_can_be_read_is_not_the_format(
    hkvtool: Run, tmp_path: Path, name: str, content: bytes
) -> None:
    source, output = tmp_path / "f.jsonl", tmp_path / "f.duckdb"
    source.write_bytes(content)
    code, _, said = hkvtool("import", str(source), "--from", name, "-o", str(output))
    assert code == Exit.UNREADABLE and "holds nothing of" in said
    assert [p.name for p in tmp_path.iterdir()] == ["f.jsonl"]


def test_a_topic_of_any_bytes(hkvtool: Run, tmp_path: Path) -> None:
    args = ("--topic", "\udcff", "--duration", "1s", "-o", str(tmp_path / "t.duckdb"))
    code, _, said = hkvtool("listen", "tcp://127.0.0.1:9", *args)
    assert code == Exit.UNREADABLE and "nothing was published" in said
