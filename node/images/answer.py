"""The bytes of one HTTP/1.1 answer to an image or a redirect; a pure function of them, whatever their pieces.

Decides what counts as the answer of a server that delivers an image. Must not know the network. Parsing is h11's,
which is strict; what it would allow and an image never needs is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass

import h11

from node.images.decode import NotAnImage, classify_kind
from node.images.url import Target
from node.images.verdict import EgressRefused, Verdict

MAX_HEAD_BYTES = 32_768
"""Of a head, a chunk's line or the trailers, each."""
MAX_INTERIM_ANSWERS = 8
MAX_CHUNKS = 40_000
"""Each costs about 10 µs; an image of 10 MiB in chunks of 512 bytes has half as many."""
MAGIC_BYTES = 12
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = [
    ("User-Agent", "b3os-image-fetcher"),
    ("Accept", "image/png, image/jpeg, image/webp, image/gif"),
    ("Accept-Encoding", "identity"),
    ("Connection", "close"),
]


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where the answer sends us, as it was written."""

    location: bytes


@dataclass(frozen=True, slots=True)
class Image:
    """The whole body."""

    data: bytes


class AnswerReader:
    """Fed with what arrives, `b""` at the end; answers once it knows."""

    def __init__(self, target: Target, max_body_bytes: int) -> None:
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._max_body_bytes = max_body_bytes
        self._body = bytearray()
        self._has_bytes = self._has_head = self._is_image = False
        self._interim_answers = self._chunks = 0
        # Nothing of the caller's request is passed on, so every fetch of a URL looks the same.
        request = h11.Request(method="GET", target=target.path, headers=[("Host", target.authority), *_HEADERS])
        self.request_bytes = (self._connection.send(request) or b"") + (
            self._connection.send(h11.EndOfMessage()) or b""
        )

    def feed(self, data: bytes) -> Redirect | Image | None:
        """Take the next bytes.

        Raises:
            EgressRefused: this is no image; the connection is of no more use.
        """
        self._has_bytes |= bool(data)
        try:
            self._connection.receive_data(data)
            while True:
                event = self._connection.next_event()
                if event is h11.NEED_DATA:
                    return None
                if (outcome := self._take(event)) is not None:
                    return outcome
        except h11.RemoteProtocolError as error:
            # h11's words quote the answer, and servers quote requests: the caller's signature would be in the log.
            raise EgressRefused(self._verdict_on(error, is_end=not data), self._where()) from None

    def _where(self) -> str:
        return "in the body" if self._has_head else "in the head" if self._has_bytes else "before the head"

    def _take(self, event: object) -> Redirect | Image | None:
        match event:
            case h11.InformationalResponse():
                self._interim_answers += 1
                if self._interim_answers > MAX_INTERIM_ANSWERS:
                    raise EgressRefused(Verdict.TOO_WORDY, "interim answers")
            case h11.Response():
                return self._take_head(event)
            case h11.Data():
                self._take_data(event)
            case h11.EndOfMessage():
                return self._take_end()
            case _:
                raise EgressRefused(Verdict.MALFORMED, type(event).__name__)
        return None

    def _take_head(self, head: h11.Response) -> Redirect | None:
        self._has_head = True
        if head.http_version not in (b"1.0", b"1.1"):
            raise EgressRefused(Verdict.MALFORMED, "another version of HTTP")
        if head.status_code in _REDIRECTS:
            locations = [value for name, value in head.headers if name == b"location"]
            if len(locations) != 1:
                raise EgressRefused(Verdict.BAD_REDIRECT, f"{len(locations)} Locations")
            return Redirect(locations[0])
        if head.status_code != 200:
            raise EgressRefused(Verdict.BAD_STATUS, f"HTTP {head.status_code}")
        lengths = [value for name, value in head.headers if name == b"content-length"]
        for name, value in head.headers:
            if name == b"content-encoding" and value.lower() != b"identity":
                raise EgressRefused(Verdict.ENCODED)
            if name == b"transfer-encoding" and (lengths or head.http_version == b"1.0"):
                raise EgressRefused(Verdict.MALFORMED, "two kinds of length")  # RFC 9112 6.1: smuggling looks like it
        if lengths and int(lengths[0]) > self._max_body_bytes:
            raise EgressRefused(Verdict.TOO_LARGE, "by its head")
        return None

    def _take_data(self, piece: h11.Data) -> None:
        self._chunks += piece.chunk_start
        if self._chunks > MAX_CHUNKS:
            raise EgressRefused(Verdict.TOO_WORDY, "chunks")
        if len(self._body) + len(piece.data) > self._max_body_bytes:
            raise EgressRefused(Verdict.TOO_LARGE, "by its body")
        self._body += piece.data
        if not self._is_image and len(self._body) >= MAGIC_BYTES:
            self._check_kind()

    def _take_end(self) -> Image:
        # What follows an image is no answer to anything: a length that lies, or an answer to a question never asked.
        if self._connection.trailing_data[0]:
            raise EgressRefused(Verdict.MALFORMED, "bytes after the end")
        if not self._is_image:
            self._check_kind()
        return Image(bytes(self._body))

    def _check_kind(self) -> None:
        """By the bytes alone: servers are often wrong about `Content-Type`, and attackers always."""
        try:
            classify_kind(bytes(self._body[:MAGIC_BYTES]))
        except NotAnImage:
            raise EgressRefused(Verdict.NOT_AN_IMAGE) from None
        self._is_image = True

    def _verdict_on(self, error: h11.RemoteProtocolError, *, is_end: bool) -> Verdict:
        if error.error_status_hint == 431:  # more than fits into the buffer
            return Verdict.TOO_WORDY
        was_http = self._has_head or not self._has_bytes
        return Verdict.INCOMPLETE if is_end and was_http else Verdict.MALFORMED
