"""What a server understands of the API, found out by asking for one thing more at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hkvtool.model.errors import Exit, HkvError
from hkvtool.probe.answers import Answer
from hkvtool.probe.load import Load
from hkvtool.probe.prompts import Piece, as_text
from hkvtool.probe.server import Refused, Server

_MOST = 1 << 40
"""Tokens, and ids of tokens, that no server has."""

TOP = 5
"""Log probabilities asked for at each token."""

_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"

_EXTRAS: dict[str, tuple[str, ...]] = {
    "log probabilities": ("logprobs",),
    "salts": ("cache_salt",),
    "ids of what is generated": ("return_token_ids",),
    "outputs of one length": ("ignore_eos",),
}
"""What is asked for beyond a prompt, and the keys of a request that ask for it."""


@dataclass
class Dialect:
    """One server's way of being asked, and what of an answer it tells."""

    server: Server
    load: Load
    model: str
    path: str = _COMPLETIONS
    ids: bool = True
    keys: set[str] = field(default_factory=set)
    tells: set[str] = field(default_factory=set)
    """Of `log probabilities`, `token ids`, `cached tokens`: what answers were seen to hold."""
    refused: dict[str, str] = field(default_factory=dict)
    """What the server would not have, and its words."""

    @property
    def can_go_on(self) -> bool:
        """Whether a prompt can hold what was generated before, token for token."""
        return not self.ids or "token ids" in self.tells

    def learn(self, sample: Sequence[Piece]) -> None:
        """Find out what can be asked. Raises HkvError where nothing can."""
        said = ""
        for self.path, self.ids in ((_COMPLETIONS, True), (_COMPLETIONS, False), (_CHAT, False)):
            try:
                self.ask(sample, output=1)
                break
            except Refused as e:
                said = f"{self.path}: {e.status}, {e}"
        else:
            raise HkvError(
                f"the server answers no completion: {said}", where=self.server.url,
                hint="is it an OpenAI-compatible server, and is that its --model?",
                exit_code=Exit.UNREADABLE,
            )  # fmt: skip
        for name, keys in _EXTRAS.items():
            self.keys.update(keys)
            try:
                self.ask(sample, salt="hkvtool", output=1)
            except Refused as e:
                self.keys.difference_update(keys)
                self.refused[name] = f"{e.status}, {e}"
        # What a server does not know is no failure of it.
        self.load.failed = 0

    def ask(
        self, prompt: Sequence[Piece], *, output: int, salt: str = "", model: str = "",
        request: str = "",
    ) -> Answer:  # fmt: skip
        """One completion, greedy. Raises Refused, Unreachable, Spent."""
        self.load.take(len(prompt) + output)
        with self.load.slots:
            body = self._body(prompt, output, salt, model)
            try:
                reply = self.server.post(self.path, body, _headers(request))
            except Refused:
                self.load.failed += 1
                raise
        answer = self._answer(reply.data, reply.seconds, request)
        if answer.logprobs:
            self.tells.add("log probabilities")
        if answer.cached is not None:
            self.tells.add("cached tokens")
        return answer

    def ask_and_leave(
        self, prompt: Sequence[Piece], *, output: int, salt: str = "", model: str = "",
        request: str = "",
    ) -> None:  # fmt: skip
        """Ask, and hang up when the first token comes."""
        self.load.take(len(prompt) + output)
        with self.load.slots:
            body = self._body(prompt, output, salt, model)
            self.server.post_and_leave(self.path, body, _headers(request))

    def _body(self, prompt: Sequence[Piece], output: int, salt: str, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model or self.model, "max_tokens": output, "temperature": 0, "seed": 0,
        }  # fmt: skip
        chat = self.path == _CHAT
        if chat:
            body["messages"] = [{"role": "user", "content": as_text(prompt)}]
        else:
            body["prompt"] = list(prompt) if self.ids else as_text(prompt)
        if "logprobs" in self.keys:
            body |= {"logprobs": True, "top_logprobs": TOP} if chat else {"logprobs": TOP}
        if "cache_salt" in self.keys and salt:
            body["cache_salt"] = salt
        if "return_token_ids" in self.keys:
            # Text alone does not tell two tokens apart that are written alike.
            body |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
        if "ignore_eos" in self.keys:
            body["ignore_eos"] = True
        return body

    def _answer(self, data: Any, seconds: float, request: str) -> Answer:
        try:
            choice = data["choices"][0]
            text = choice["message"]["content"] if self.path == _CHAT else choice["text"]
            usage = data.get("usage") or {}
            tokens, logprobs, tops = _tokens(choice)
            ids = choice.get("token_ids")
            if not (isinstance(ids, list) and all(map(_is_count, ids))):
                ids = []
            if ids:
                self.tells.add("token ids")
            # Log probabilities that are told by text must be compared by text.
            if ids and all(t.isdecimal() for t in tokens):
                tokens = tuple(str(i) for i in ids)
            elif not tokens:
                tokens = tuple(text or "")
            details = usage.get("prompt_tokens_details") or {}
            return Answer(
                tokens, logprobs, tops, text or "", _count(details.get("cached_tokens")),
                _count(usage.get("prompt_tokens")), str(data.get("id") or request), seconds,
                tuple(ids),
            )  # fmt: skip
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as e:
            raise Refused(200, f"that is no completion: {type(e).__name__}: {e}") from None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _count(value: Any) -> int | None:
    """What a server tells as a number of tokens, where it is one."""
    return value if _is_count(value) else None


def _headers(request: str) -> dict[str, str]:
    return {"X-Request-Id": quote(request)} if request else {}


def _tokens(
    choice: dict[str, Any],
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[dict[str, float], ...]]:
    """Tokens with their log probabilities, and those of the likeliest, in either form."""
    told = choice.get("logprobs") or {}
    if told.get("content"):
        rows = told["content"]
        return (
            tuple(_plain(r["token"]) for r in rows),
            tuple(float(r["logprob"]) for r in rows),
            tuple(
                {_plain(t["token"]): float(t["logprob"]) for t in r.get("top_logprobs") or ()}
                for r in rows
            ),
        )
    tokens = tuple(_plain(t) for t in told.get("tokens") or ())
    logprobs = tuple(float(p) for p in told.get("token_logprobs") or ())
    tops = tuple(
        {_plain(k): float(v) for k, v in (row or {}).items()}
        for row in told.get("top_logprobs") or ()
    )
    return (tokens, logprobs, tops) if len(tokens) == len(logprobs) else ((), (), ())


def _plain(token: str) -> str:
    """Servers that tell ids of tokens write them so that they are not taken for text."""
    return token.removeprefix("token_id:")
