"""Servers that mean no good, and addresses that are none: said in words, in time, and never taken
for a clean server."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest

from hkvtool.cli.app import main

Answer = Callable[[str, dict[str, object]], bytes]


@contextmanager
def hostile(answer: Answer, then: bytes = b"", pause: float = 0.05) -> Iterator[str]:
    """A server of raw bytes; after each reply it goes on with `then` until nobody listens."""
    ended = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def serve(one: socket.socket) -> None:
        with suppress(OSError, ValueError), one, one.makefile("rb") as file:
            path = file.readline().decode("latin1").split()[1]
            size = 0
            while (line := file.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    size = int(line.split(b":")[1])
            body = json.loads(file.read(size) or b"{}")
            one.sendall(answer(path, body))
            while then and not ended.wait(pause):
                one.sendall(then)

    def accept() -> None:
        with suppress(OSError):
            while True:
                one, _ = server.accept()
                threading.Thread(target=serve, args=(one,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        ended.set()
        # A thread that waits in accept keeps a socket open that is only closed.
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def reply(data: object, status: str = "200 OK", *more: str) -> bytes:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(head).encode() + body


def completion(path: str, text: str = "a", **more: object) -> bytes:
    if path.endswith("/models"):
        return reply({"data": [{"id": "m", "max_model_len": 512}]})
    return reply({"choices": [{"text": text}], **more})


def probed(url: str, *more: str) -> int:
    return main(["probe", url, "--comparisons", "4", *more])


@pytest.mark.parametrize(
    ("begin", "then"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["a body", "a header", "promises"],
)
def test_what_drips_is_not_waited_for(
    begin: bytes, then: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    began = monotonic()
    with hostile(lambda path, body: begin, then) as url:
        assert probed(url, "--timeout", "1s") == 3
    assert "did not answer in time" in capsys.readouterr().err
    assert monotonic() - began < 100, "all of what drips would take an hour"


@pytest.mark.parametrize("wait", ["-5", "nan", "1e9"])
def test_when_to_come_again_is_no_command(wait: str, capsys: pytest.CaptureFixture[str]) -> None:
    began = monotonic()
    with hostile(lambda path, body: reply({}, "503 no", f"Retry-After: {wait}")) as url:
        assert probed(url, "--timeout", "1s") == 3
    assert "unexpected" not in capsys.readouterr().err
    assert monotonic() - began < 100


@pytest.mark.parametrize(
    "answer",
    [
        lambda path, body: reply(b"[" * 100_000),
        lambda path, body: completion(path, usage={"prompt_tokens": "x", "prompt_tokens_details": {
            "cached_tokens": "y"}}),
        lambda path, body: reply(b'{"data":[{"id":"m","max_model_len":1e999}]}')
        if path.endswith("/models") else completion(path),
        lambda path, body: reply(
            b'vllm:cache_config_info{block_size="99999999999",num_gpu_blocks="99999999999"} 1'
        ) if path == "/metrics" else completion(path),
    ],
    ids=["deep", "counts that are text", "infinite", "a cache without end"],
)  # fmt: skip
def test_nonsense_is_no_traceback(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    with hostile(answer) as url:
        assert probed(url) in (3, 4)
    assert "unexpected" not in capsys.readouterr().err


def test_a_server_that_guesses_is_no_clean_server(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(5)
    with hostile(lambda path, body: completion(path, rng.choice("abcdefgh"))) as url:
        assert probed(url) == 4
    assert "inconclusive" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["http://[::1", "http://a..b/", "file:///etc/passwd", ""])
def test_an_address_that_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert probed(url) == 2
    assert "no address of a server" in capsys.readouterr().err


def test_a_key_with_a_line_break(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a\r\nX-Evil: b")
    assert probed("http://127.0.0.1:9") == 2
    assert "--key-from" in capsys.readouterr().err


def test_what_is_to_be_repeated_is_nested_without_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "D1.json").write_text("[" * 100_000)
    assert probed("http://127.0.0.1:9", "--again", str(tmp_path / "D1.json")) == 2
    assert "no JSON" in capsys.readouterr().err
