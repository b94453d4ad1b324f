"""The one server that is asked: plain HTTP, no redirect, no proxy, no other host."""

from __future__ import annotations

import json
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from hkvtool.model.errors import Exit, HkvError

_LARGEST = 64 << 20
"""Bytes of a reply beyond which it is not a reply to what was asked."""

_TRIES = 3
_BUSY = frozenset((429, 502, 503, 504))
_LONGEST_WAIT = 30.0


class Refused(Exception):
    """The server answered, but not with what was asked for."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unreachable(HkvError):
    """Nobody answers."""

    def __init__(self, what: str, where: str) -> None:
        hint = "give the address of an OpenAI-compatible server, e.g. http://127.0.0.1:8000"
        super().__init__(what, where=where, hint=hint, exit_code=Exit.UNREADABLE)


@dataclass(frozen=True)
class Reply:
    """What came back, and how long it took."""

    data: Any
    seconds: float


class Server:
    """Sends one request at a time on a connection of its own, so that threads may share it."""

    def __init__(self, url: str, *, key: str = "", timeout: float = 120.0) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise HkvError(f"{url!r} is no address of a server", hint="e.g. http://127.0.0.1:8000")
        self._host, self._port, self._secure = parts.hostname, port, parts.scheme == "https"
        base = parts.path.rstrip("/")
        self._root = base.removesuffix("/v1")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{base}"
        self._key = key
        self._timeout = timeout

    def get(self, path: str) -> Any:
        """A reply as JSON, or as text where it is none. Raises Refused, Unreachable."""
        return self._sent("GET", path, None, {}).data

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Reply:
        """Send JSON. Raises Refused, Unreachable."""
        return self._sent("POST", path, body, headers)

    def post_and_leave(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Send JSON that asks for a stream, and hang up at the first piece of it."""
        try:
            connection = self._connection()
            try:
                self._request(connection, "POST", path, body | {"stream": True}, headers)
                response = connection.getresponse()
                response.readline()
            finally:
                connection.close()
        except (OSError, HTTPException) as e:
            raise Unreachable(_why(e), self.url) from e

    def _sent(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> Reply:
        for attempt in range(1, _TRIES + 1):
            began = time.monotonic()
            try:
                status, raw, wait = self._once(method, path, body, headers)
            except (OSError, HTTPException) as e:
                if attempt == _TRIES or isinstance(e, (socket.gaierror, ssl.SSLError)):
                    raise Unreachable(_why(e), self.url) from e
                time.sleep(0.2 * attempt)
                continue
            if status in _BUSY and attempt < _TRIES:
                time.sleep(min(_LONGEST_WAIT, wait or 0.5 * attempt))
                continue
            if status >= 300:
                raise Refused(status, _message(raw))
            return Reply(_read(raw), time.monotonic() - began)
        raise AssertionError("the last try returns or raises")

    def _once(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> tuple[int, bytes, float]:
        connection = self._connection()
        try:
            self._request(connection, method, path, body, headers)
            response = connection.getresponse()
            raw = response.read(_LARGEST + 1)
            wait = 0.0
            with suppress(ValueError):
                wait = float(response.headers.get("Retry-After") or 0)
            if len(raw) > _LARGEST:
                raise Refused(response.status, "the reply is larger than 64 MiB")
            return response.status, raw, wait
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout)

    def _request(
        self, connection: HTTPConnection, method: str, path: str, body: dict[str, Any] | None,
        headers: dict[str, str],
    ) -> None:  # fmt: skip
        if self._key:
            headers = headers | {"Authorization": f"Bearer {self._key}"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers = headers | {"Content-Type": "application/json"}
        connection.request(method, f"{self._root}{path}", body=data, headers=headers)


def _read(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def _message(raw: bytes) -> str:
    data = _read(raw)
    for key in ("error", "message", "detail"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    return str(data)[:300] or "no reason given"


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the server did not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there"
    return f"the server cannot be asked: {error or type(error).__name__}"
