"""Calls of the service: JSON in, JSON or events out.

Decides the headers of a call, and that every answer is an object or a `Failure`. Must not know who reads the answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import quote, urlencode

from shared.cli.user.address import Address
from shared.cli.user.document import Document, NotJson, parse_json, render_json
from shared.cli.user.failure import FAILED, UNREACHABLE, Failure
from shared.cli.user.refusal import Refusal, parse_refusal
from shared.cli.user.sse import EventTooLong, SseParser
from shared.cli.user.transport import Answer, Request, exchange

HEAD_OF_STREAM_S = 620.0
"""The head waits for the first token, for which the edge gives a node 600 s."""
SILENCE_S = 90.0
"""Nodes ping every 10 s, and an edge gives one up after 60 s without a byte."""
_MOST_ERROR_BYTES = 1024 * 1024

Query = Mapping[str, str | int | None]


@dataclass(slots=True)
class Refused(Exception):
    """The server answered, and said no."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class EventStream:
    """The events of an answer as objects."""

    request_id: str
    events: Iterator[Document]


@dataclass(frozen=True, slots=True)
class Api:
    """One server, and who asks. The token is never part of a repr."""

    address: Address
    _token: str | None

    def __repr__(self) -> str:
        return f"Api({self.address.url})"

    def get(self, path: str, query: Query | None = None) -> Document:
        """Fetch an object.

        Raises:
            Failure: nobody answers, or the server refuses.
        """
        return self._call("GET", with_query(path, query or {}))

    def post(self, path: str, body: Document) -> Document:
        """Send an object, and get one back, or an empty one. Raises as `get` does."""
        return self._call("POST", path, body)

    def delete(self, path: str) -> Document:
        """Raises as `get` does."""
        return self._call("DELETE", path)

    def ask(self, method: str, path: str, body: Document | None = None) -> Document:
        """The same for callers that look at the refusal.

        Raises:
            Refused: the server says no.
            Failure: nobody answers, or not in JSON.
        """
        with exchange(self.address, self._request(method, path, body)) as answer:
            if not 200 <= answer.status < 300:
                raise Refused(_read_refusal(answer))
            raw = answer.read()
            return {} if answer.status == 204 else _read_object(raw, self.address)

    @contextlib.contextmanager
    def stream(self, path: str, body: Document) -> Iterator[EventStream]:
        """Send an object, and get events; leaving the block ends them at the server too.

        Raises:
            Failure: as `get`, or the connection breaks between two events.
        """
        request = self._request("POST", path, body)
        with exchange(self.address, request, head_s=HEAD_OF_STREAM_S, silence_s=SILENCE_S) as answer:
            if answer.status != 200:
                raise _read_refusal(answer).as_failure()
            yield EventStream(_request_id(answer), _read_events(answer, self.address))

    def _call(self, method: str, path: str, body: Document | None = None) -> Document:
        try:
            return self.ask(method, path, body)
        except Refused as refused:
            raise refused.refusal.as_failure() from None

    def _request(self, method: str, path: str, body: Document | None) -> Request:
        headers = {"Accept": "application/json, text/event-stream", "User-Agent": f"b3os-cli/{_version()}"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is None:
            return Request(method, path, headers)
        return Request(method, path, {**headers, "Content-Type": "application/json"}, render_json(body).encode())


def with_query(path: str, query: Query) -> str:
    """A path and what is asked of it, without what is None."""
    wanted = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def segment(text: str) -> str:
    """An id as one part of a path."""
    return quote(text, safe="")


def _version() -> str:
    try:
        return version("b3os")
    except PackageNotFoundError:
        return "0"


def _request_id(answer: Answer) -> str:
    return answer.headers.get("request-id", "")


def _read_refusal(answer: Answer) -> Refusal:
    try:
        raw = answer.read(_MOST_ERROR_BYTES)
    except Failure:  # the status says enough where the reason is cut off or without end
        raw = b""
    return parse_refusal(answer.status, answer.headers, raw)


def _read_object(raw: bytes, address: Address) -> Document:
    try:
        document = parse_json(raw)
    except NotJson:
        document = None
    if not isinstance(document, dict):
        raise Failure(f"{address.authority} answers, but not as a B3OS server does; is the base URL right?", FAILED)
    return document


def _read_events(answer: Answer, address: Address) -> Iterator[Document]:
    parser = SseParser()
    try:
        for chunk in answer.chunks():
            for event in parser.feed(chunk):
                yield _read_object(event.data.encode(errors="replace"), address)
    except EventTooLong:
        raise Failure(f"{address.authority} sends an event without end", UNREACHABLE) from None
