"""The one server that is asked: plain HTTP, no redirect, no proxy, no other host."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from hkvtool.model.errors import Exit, HkvError

_LARGEST = 64 << 20
"""Bytes of a reply beyond which it is not a reply to what was asked."""

_LONGEST_LINE = 1 << 16

_TRIES = 3
_BUSY = frozenset((429, 502, 503, 504))
_LONGEST_WAIT = 30.0
_IN_A_PATH = "/%:@?!$&'()*+,;=~"


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
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port, host = parts.port, (parts.hostname or "").encode("idna").decode()
        except ValueError:
            host = ""
        if not host or parts.scheme not in ("http", "https"):
            raise HkvError(f"{url!r} is no address of a server", hint="e.g. http://127.0.0.1:8000")
        if not (key.isascii() and key.isprintable()):
            raise HkvError(
                "the key of the API has a character that no header may have",
                hint="see the variable that --key-from names: is there a line break in it?",
            )
        self._host, self._port, self._secure = host, port, parts.scheme == "https"
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
            with self._connected(self._timeout) as connection:
                self._request(connection, "POST", path, body | {"stream": True}, headers)
                connection.getresponse().readline(_LONGEST_LINE)
        except (OSError, HTTPException) as e:
            raise Unreachable(_why(e), self.url) from e

    def _sent(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> Reply:
        until = time.monotonic() + self._timeout
        for attempt in range(1, _TRIES + 1):
            began = time.monotonic()
            try:
                status, raw, wait = self._once(method, path, body, headers, until - began)
            except (OSError, HTTPException) as e:
                last = attempt == _TRIES or isinstance(e, (socket.gaierror, ssl.SSLError))
                if last or not _waited(0.2 * attempt, until):
                    raise Unreachable(_why(e), self.url) from e
                continue
            if status in _BUSY and attempt < _TRIES:
                if _waited(min(_LONGEST_WAIT, wait or 0.5 * attempt), until):
                    continue
            if status >= 300:
                raise Refused(status, _message(raw))
            return Reply(_read(raw), time.monotonic() - began)
        raise AssertionError("the last try returns or raises")

    def _once(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str],
        seconds: float,
    ) -> tuple[int, bytes, float]:  # fmt: skip
        with self._connected(seconds) as connection:
            self._request(connection, method, path, body, headers)
            response = connection.getresponse()
            raw = response.read(_LARGEST + 1)
            wait = 0.0
            with suppress(ValueError):
                wait = float(response.headers.get("Retry-After") or 0)
            if len(raw) > _LARGEST:
                raise Refused(response.status, "the reply is larger than 64 MiB")
            return response.status, raw, wait if wait > 0 else 0.0

    @contextmanager
    def _connected(self, seconds: float) -> Iterator[HTTPConnection]:
        """A connection that ends after so long: a socket's own timeout begins anew with every byte
        that comes. Raises OSError, HTTPException."""
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=seconds)
        late = threading.Event()

        def end(sock: socket.socket) -> None:
            late.set()
            with suppress(OSError):
                # Of the plain socket, since a TLS one would forget itself under its reader.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

        timer = None
        try:
            connection.connect()
            timer = threading.Timer(seconds, end, [connection.sock])
            timer.daemon = True
            timer.start()
            yield connection
            if late.is_set():
                raise TimeoutError
        except (OSError, HTTPException) as e:
            raise (TimeoutError() if late.is_set() else e) from None
        finally:
            if timer is not None:
                timer.cancel()
            connection.close()

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
        place = quote(f"{self._root}{path}", safe=_IN_A_PATH)
        connection.request(method, place, body=data, headers=headers)


def _waited(seconds: float, until: float) -> bool:
    """Whether so long could be waited before the time is over."""
    if time.monotonic() + seconds >= until:
        return False
    time.sleep(seconds)
    return True


def _read(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
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
    return f"the server cannot be asked: {str(error)[:200] or type(error).__name__}"
