"""An HTTP server that plays what a test tells it to, good or hostile, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Seen:
    """One request. `target` is the whole of what stands behind the method; `headers` are lower-case."""

    method: str
    target: str
    path: str
    query: dict[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `chunks` are sent as HTTP chunks; a callable among them is called, to wait for something.

    `raw` is sent instead of all that, as it is; then the connection is closed.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes | Callable[[], object]] | None = None
    breaks_off: bool = False
    raw: bytes | None = None


def as_json(document: object, status: int = 200, **headers: str) -> Reply:
    """A JSON answer; `_` in names of headers stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(document).encode(), status, {"Content-Type": "application/json", **named})


def events(*documents: Any) -> list[bytes]:
    """Each as the bytes of one event."""
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in documents]


def answer(*deltas: Any, stop_reason: str = "end_turn") -> list[Any]:
    """The events of a whole answer around deltas; a string is a text."""
    started = {"id": "msg_1", "role": "assistant", "content": [], "usage": {"input_tokens": 3, "output_tokens": 0}}
    shaped = [{"type": "text_delta", "text": each} if isinstance(each, str) else each for each in deltas]
    return [
        {"type": "message_start", "message": started},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": each} for each in shaped),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None},
            "usage": {"input_tokens": 3, "output_tokens": 5},
            "b3os": {"timing": {"total_ms": 1234.5}},
        },
        {"type": "message_stop"},
    ]


def streamed(*documents: Any, status: int = 200) -> Reply:
    """These events, a chunk each."""
    return Reply(status=status, headers=EVENT_STREAM, chunks=events(*documents))


EVENT_STREAM = {"Content-Type": "text/event-stream", "request-id": "req_stream"}
Play = Reply | Callable[[Seen], Reply]


class PlayedServer:
    """Plays `routes`, by method and path; a list is played one after the other, and its last one again and again."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._scheme = "http" if tls is None else "https"
        self.routes: dict[tuple[str, str], Play | list[Reply]] = {}
        self.seen: list[Seen] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def bodies(self, path: str) -> list[Any]:
        """What was sent to a path."""
        return [seen.json for seen in self.seen if seen.path == path]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def play(self, seen: Seen) -> Reply:
        """What the test wants for a request."""
        self.seen.append(seen)
        play = self.routes.get((seen.method, seen.path), Reply(b"", 404))
        if isinstance(play, list):
            return play.pop(0) if len(play) > 1 else play[0]
        return play if isinstance(play, Reply) else play(seen)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                parts = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                query = parse_qs(parts.query)
                reply = server.play(Seen(self.command, self.path, parts.path, query, headers, body))
                self.close_connection = True
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    _send(self, reply)

            do_GET = do_POST = do_DELETE = do_CONNECT = _answer  # noqa: N815 - named by the library

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    if reply.raw is not None:
        handler.wfile.write(reply.raw)
        return
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if reply.chunks is None:
        handler.send_header("Content-Length", str(len(reply.body)))
        handler.end_headers()
        handler.wfile.write(reply.body)
        return
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in reply.chunks:
        if callable(chunk):
            chunk()
        elif chunk:
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            handler.wfile.flush()
    if not reply.breaks_off:
        handler.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def playing(tls: ssl.SSLContext | None = None) -> Iterator[PlayedServer]:
    """A server for one test."""
    with PlayedServer(tls) as server:
        yield server
