"""A tiny OpenAI-compatible server whose cache is modelled, and can be broken in five ways.

Its model reads a history in three forms, as a hybrid does: every block, the last blocks again (the
window), and one state of all that came before. What is cached for a prefix are those three; each
fault puts something else in the place of one.
"""

from __future__ import annotations

import json
import math
import random
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BLOCK = 16
WINDOW = 2
VOCABULARY = 48
FAULTS = ("stale window", "swapped block", "missing state", "wrong salt", "late load")

Block = tuple[int, ...]


@lru_cache(maxsize=1 << 14)
def _vector(kind: str, at: int, content: Any) -> tuple[float, ...]:
    rng = random.Random(f"{kind}/{at}/{content}")
    return tuple(rng.gauss(0, 1) for _ in range(VOCABULARY))


def logits(blocks: Sequence[Block], window: Sequence[Block], state: int) -> list[float]:
    """What comes next, by all three forms of the history."""
    parts = [_vector("full", i, b) for i, b in enumerate(blocks)]
    parts += [_vector("window", 0, tuple(window)), _vector("state", 0, state)]
    scale = 2 / math.sqrt(len(parts))
    return [scale * sum(column) for column in zip(*parts, strict=True)]


def fold(blocks: Sequence[Block], state: int) -> int:
    """The recurrent state behind some more blocks."""
    for block in blocks:
        state = hash((state, block))
    return state


def _number(word: str) -> int:
    """The same in every run."""
    return zlib.crc32(word.encode()) % 1000


@dataclass
class Stub:
    """What the server is, and what is wrong with it."""

    fault: str = ""
    noise: float = 0.0
    jumps: float = 0.0
    """Of answers, the share that is another by a nat, as where a router of experts wavers."""
    capacity: int = 4096
    """Blocks on the device; older ones are on the tier below, from where they are loaded."""
    refuses: frozenset[str] = frozenset()
    """Keys of a request that it answers with 400."""
    ignores: frozenset[str] = frozenset()
    """Keys of a request that it takes without a word and does nothing about."""
    caches: bool = True
    tells_cached: bool = True
    counts_hits: bool = False
    """Whether its metrics tell how many tokens were reused in all."""
    tells_texts: bool = False
    """Whether log probabilities are told by text, as SGLang does, and ids of tokens beside them."""
    limit: int = 2048
    adapters: tuple[str, ...] = ()
    fails_at: int = 0
    """The number of the request from which on every one fails."""

    def __post_init__(self) -> None:
        self._device: OrderedDict[Any, Block] = OrderedDict()
        self._below: dict[Any, Block] = {}
        self._lock = threading.Lock()
        self._asked: Counter[tuple[int, ...]] = Counter()
        self.requests = self.hits = 0
        self.aborted = 0
        self.resets = 0
        self.headers: list[dict[str, str]] = []

    # --- the cache ---------------------------------------------------------------------------

    def _read(self, key: Any, prompt: Sequence[int]) -> tuple[list[Block], bool]:
        """The blocks of the longest cached prefix, and whether any came from below."""
        found: list[Block] = []
        loaded = False
        for end in range(BLOCK, len(prompt), BLOCK):
            name = (key, tuple(prompt[:end]))
            if name in self._device:
                self._device.move_to_end(name)
                found.append(self._device[name])
            elif name in self._below:
                loaded = True
                block = self._below[name]
                late = self.fault == "late load"
                found.append((0,) * BLOCK if late else block)
                self._keep(name, block)
            else:
                break
        return found, loaded

    def _keep(self, name: Any, block: Block) -> None:
        self._device[name] = block
        while len(self._device) > self.capacity:
            old, content = self._device.popitem(last=False)
            self._below[old] = content

    def reset(self) -> None:
        with self._lock:
            self.resets += 1
            self._device.clear()
            self._below.clear()

    # --- a request ---------------------------------------------------------------------------

    def complete(self, body: dict[str, Any], prompt: list[int]) -> tuple[list[int], list[Any], int]:
        """Tokens, the log probabilities at each, and how many prompt tokens were cached."""
        with self._lock:
            salt = "" if "cache_salt" in self.ignores else str(body.get("cache_salt", ""))
            key = (body["model"], "" if self.fault == "wrong salt" else salt)
            hit, _ = self._read(key, prompt) if self.caches else ([], False)
            cached = len(hit) * BLOCK
            self.hits += cached
            true = [tuple(prompt[i : i + BLOCK]) for i in range(0, len(prompt), BLOCK)]
            for i in range(1, len(prompt) // BLOCK + 1):
                name = (key, tuple(prompt[: i * BLOCK]))
                if name not in self._device:
                    self._keep(name, true[i - 1])
            state = fold(true[: len(hit)], 0)
            if hit and self.fault == "missing state":
                state = 0
            if self.fault == "swapped block" and len(hit) > 1:
                hit[0], hit[1] = hit[1], hit[0]
            seen = list(hit)
            if self.fault == "stale window" and len(hit) > WINDOW:
                seen[-WINDOW:] = [hit[0]] * WINDOW
            tokens: list[int] = []
            rows: list[Any] = []
            # Of what is asked and how often, not of whose thread comes first.
            self._asked[tuple(prompt)] += 1
            rng = random.Random(f"{prompt} {self._asked[tuple(prompt)]}")
            jump = 1.0 if rng.random() < self.jumps else self.noise
            for _ in range(int(body["max_tokens"])):
                history = [*prompt, *tokens]
                rest = [tuple(history[i : i + BLOCK]) for i in range(cached, len(history), BLOCK)]
                full = [*hit, *rest, (_number(body["model"]),)]
                row = logits(full, [*seen, *rest][-WINDOW:], fold(rest, state))
                row = [value + rng.uniform(-jump, jump) for value in row]
                total = math.log(sum(math.exp(v) for v in row))
                told = {i: v - total for i, v in enumerate(row)}
                best = max(told, key=lambda i: told[i])
                tokens.append(best)
                top = sorted(told, key=lambda i: -told[i])[: int(body.get("logprobs") or 0)]
                rows.append((told[best], {i: told[i] for i in top}))
            return tokens, rows, cached


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None: ...

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                own = [{"id": "stub", "max_model_len": stub.limit}]
                own += [{"id": name, "parent": "stub"} for name in stub.adapters]
                self._answer(200, {"object": "list", "data": own})
            elif self.path == "/metrics" and stub.counts_hits:
                self._answer(200, f'vllm:prefix_cache_hits_total{{engine="0"}} {stub.hits}.0\n')
            else:
                self._answer(404, {"error": {"message": "no such place"}})

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            stub.requests += 1
            stub.headers.append(dict(self.headers))
            if self.path == "/reset_prefix_cache":
                stub.reset()
                self._answer(200, {})
                return
            if stub.fails_at and stub.requests >= stub.fails_at:
                self._answer(500, {"error": {"message": "out of order"}})
                return
            refused = sorted(stub.refuses & body.keys())
            if "chat" in self.path or refused:
                self._answer(400, {"error": {"message": f"not allowed: {refused}"}})
                return
            prompt = body["prompt"]
            if isinstance(prompt, str):
                prompt = [_number(word) for word in prompt.split()]
            elif "ids" in stub.refuses:
                self._answer(400, {"error": {"message": "a prompt is text"}})
                return
            if body.get("stream"):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"data: {}\n\n")
                stub.aborted += 1
                stub.complete(body | {"max_tokens": 1}, prompt)
                return
            tokens, rows, cached = stub.complete(body, prompt)
            self._answer(200, _reply(stub, body, prompt, tokens, rows, cached))

        def _answer(self, status: int, data: Any) -> None:
            raw = (data if isinstance(data, str) else json.dumps(data)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    return Handler


def _reply(
    stub: Stub,
    body: dict[str, Any],
    prompt: list[int],
    tokens: list[int],
    rows: list[Any],
    cached: int,
) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "text": "".join(f" w{t}" for t in tokens)}
    if body.get("logprobs") and "logprobs" not in stub.ignores:
        form = "w{}" if stub.tells_texts else "token_id:{}"
        choice["logprobs"] = {
            "tokens": [form.format(t) for t in tokens],
            "token_logprobs": [row[0] for row in rows],
            "top_logprobs": [{form.format(i): v for i, v in row[1].items()} for row in rows],
        }
    if body.get("return_token_ids") and "return_token_ids" not in stub.ignores:
        choice["token_ids"] = tokens
    usage: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
    if stub.tells_cached and (cached or not stub.caches):
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"id": f"cmpl-{stub.requests}", "choices": [choice], "usage": usage}


@contextmanager
def serving(stub: Stub) -> Iterator[str]:
    """The address where it listens, on this machine only."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
