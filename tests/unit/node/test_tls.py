"""TLS as a function of bytes: where records end, what is offered, and how much may carry nothing."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from node.images.tls import (
    MAX_DATALESS_RECORDS,
    MAX_HANDSHAKE_BYTES,
    MAX_HANDSHAKE_RECORDS,
    MAX_SENT_BYTES,
    RecordCutter,
    TlsClient,
    build_tls_context,
)
from node.images.verdict import EgressRefused, Verdict

HOST = "a.example"
HELLO_REQUEST = b"\x16\3\3\0\4" + bytes(4)
ONLY_P256 = b"\0\x0a\0\4\0\2\0\x17"
"""The extension `supported_groups` with one group."""


class Pair:
    """A client and a server without anything between them."""

    def __init__(self, folder: Path, version: ssl.TLSVersion) -> None:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(HOST).configure_cert(context)
        context.minimum_version = context.maximum_version = version
        self.client = TlsClient(build_tls_context(folder / "ca.pem"), HOST)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self, size: int) -> None:
        """With the server's bytes in pieces of one size."""
        while not self.client.is_secure:
            self._incoming.write(self.client.take_outgoing())
            with contextlib.suppress(ssl.SSLWantReadError):
                self.server.do_handshake()
            self.carry(size)
        self._incoming.write(self.client.take_outgoing())
        self.server.do_handshake()

    def carry(self, size: int) -> bytes:
        """What the server has said, to the client."""
        data = self._outgoing.read()
        return b"".join(self.client.feed(data[at : at + size]) for at in range(0, len(data), size))


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    return Pair(tmp_path, request.param)


@pytest.mark.parametrize("size", [1, 7, 8192])
def test_data_is_the_same_in_any_pieces(pair: Pair, size: int) -> None:
    pair.shake_hands(size)
    data = bytes(range(256)) * 100
    pair.server.write(data)
    assert pair.carry(size) == data
    assert not pair.client.is_closed
    with pytest.raises(ssl.SSLWantReadError):
        pair.server.unwrap()
    assert pair.carry(size) == b""
    assert pair.client.is_closed


def test_what_is_written_arrives(pair: Pair) -> None:
    pair.shake_hands(8192)
    pair.client.write(b"GET /")
    pair._incoming.write(pair.client.take_outgoing())
    assert pair.server.read(100) == b"GET /"


def test_what_would_make_a_handshake_costly_is_not_offered(pair: Pair) -> None:
    """Groups of finite fields: up to 8192 bits in TLS 1.3, and any at all in 1.2."""
    assert ONLY_P256 in pair.client.take_outgoing()
    suites = build_tls_context(None).get_ciphers()
    assert {suite["kea"] for suite in suites} <= {"kx-any", "kx-ecdhe"}


def end_of(pair: Pair, piece: bytes) -> tuple[EgressRefused, int]:
    """What a handshake that is flooded ends with, and after how many bytes."""
    for number in range(1, 1_000_000):
        try:
            pair.client.feed(piece)
        except EgressRefused as refused:
            return refused, number * len(piece)
    raise AssertionError("it has no end")


def test_a_handshake_has_a_bound_in_records(pair: Pair) -> None:
    refused, count = end_of(pair, HELLO_REQUEST)
    assert refused.verdict is Verdict.TLS_FAILED
    assert count <= (MAX_HANDSHAKE_RECORDS + 1) * len(HELLO_REQUEST)


def test_a_handshake_has_a_bound_in_bytes(pair: Pair) -> None:
    full = b"\x16\3\3\x40\0" + bytes(16_384)
    refused, count = end_of(pair, full)
    assert refused.verdict is Verdict.TLS_FAILED
    assert count <= MAX_HANDSHAKE_BYTES + len(full)


def test_answers_to_demands_have_a_bound(pair: Pair) -> None:
    pair.shake_hands(8192)
    pair.client.write(bytes(MAX_SENT_BYTES))
    with pytest.raises(EgressRefused) as raised:
        pair.client.take_outgoing()
    assert raised.value.verdict is Verdict.TOO_WORDY


def test_a_servers_usual_tickets_are_far_from_the_bound(pair: Pair) -> None:
    pair.shake_hands(8192)
    pair.server.write(b"x")
    assert pair.carry(8192) == b"x"
    assert pair.client._dataless_count * 8 <= MAX_DATALESS_RECORDS


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 60))
def test_records_end_where_their_headers_say_in_any_pieces(bodies: list[bytes], size: int) -> None:
    records = [b"\x17\3\3" + len(body).to_bytes(2, "big") + body for body in bodies]
    stream = b"".join(records) + b"\x17\3"
    cutter, found, part = RecordCutter(), [], b""
    for at in range(0, len(stream), size):
        for piece, is_end in cutter.cut(stream[at : at + size]):
            part += piece
            if is_end:
                found.append(part)
                part = b""
    assert found == records
    assert part == b"\x17\3"
