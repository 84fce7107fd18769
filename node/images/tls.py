"""A client's TLS 1.2 or 1.3 as a function of the bytes that arrive; no socket, no clock.

Decides what a secure connection is, and how much a server may send that carries no data: certificates, tickets, new
keys, warnings, empty records. OpenSSL is given one record at a time, so that no flood of small ones hides behind a
single call. Must not know HTTP.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from node.images.verdict import EgressRefused, Verdict

MAX_HANDSHAKE_BYTES = 65_536
"""Chains of certificates have 3 to 10 KB, with signatures that withstand quantum computers about 20."""
MAX_HANDSHAKE_RECORDS = 128
MAX_DATALESS_RECORDS = 32
MAX_DATALESS_BYTES = 32_768
"""After the handshake, over the whole connection: servers send two tickets, seldom new keys."""
MAX_RECORDS = 40_000
"""Each costs some 5 µs; an image of 10 MiB in records of 512 bytes has half as many."""
MAX_SENT_BYTES = 32_768
"""A hello, a request, and an answer to each of the server's few demands."""
_HEADER_BYTES = 5
_RECORD_BYTES = 16_384
_ECDHE = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES"
_GROUP = "prime256v1"


def build_tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """A client's context: TLS 1.2 or newer, a chain to a known root, the host's own name.

    Made by hand: `ssl.create_default_context` would write session keys to a file that the environment names. Keys are
    agreed on P-256 alone, which RFC 8446 9.1 has every server know: in a finite field a server could choose 8192 bits
    or a group of its own, and each handshake would compute for 90 ms.

    Raises:
        OSError: the file can't be read, or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks chain and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_ECDHE)
    context.set_ecdh_curve(_GROUP)
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca_file)
    return context


class TlsClient:
    """Fed with what arrives; what has to be sent lies ready in between.

    Attributes:
        is_secure: the handshake is over, and the server is who it has to be.
        is_closed: the server said that nothing more comes (`close_notify`), so that what came is whole.
    """

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._records = RecordCutter()
        self._handshake_bytes = self._record_count = self._sent_bytes = 0
        self._record_bytes = self._dataless_count = self._dataless_bytes = 0
        self.is_secure = self.is_closed = False
        self._shake_hands()

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, and give what they carry.

        Raises:
            EgressRefused: this is no TLS, not the server, or too much of nothing; the connection is of no more use.
        """
        carried = bytearray()
        for part, is_end in self._records.cut(data):
            if self.is_closed:
                break
            self._incoming.write(part)
            was_secure = self.is_secure
            piece = self._read() if was_secure else self._shake_hands()
            carried += piece
            if was_secure:
                self._check_flow(len(part), is_end=is_end, has_data=bool(piece))
            else:
                self._check_handshake(len(part), is_end=is_end)
        return bytes(carried)

    def write(self, data: bytes) -> None:
        """Put data of ours among the bytes to be sent."""
        self._tls.write(data)

    def take_outgoing(self) -> bytes:
        """The bytes to be sent now; each is given once.

        Raises:
            EgressRefused: a server makes us say more than a request takes.
        """
        data = self._outgoing.read()
        self._sent_bytes += len(data)
        if self._sent_bytes > MAX_SENT_BYTES:
            raise EgressRefused(Verdict.TOO_WORDY, "demands of TLS")
        return data

    def _shake_hands(self) -> bytes:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLCertVerificationError as error:
            raise EgressRefused(Verdict.BAD_CERTIFICATE, error.verify_message) from None
        except ssl.SSLError as error:
            raise EgressRefused(Verdict.TLS_FAILED, error.reason or type(error).__name__) from None
        self.is_secure = True
        return b""

    def _read(self) -> bytes:
        data = bytearray()
        try:
            while piece := self._tls.read(_RECORD_BYTES):
                data += piece
            self.is_closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise EgressRefused(Verdict.INCOMPLETE, error.reason or type(error).__name__) from None
        return bytes(data)

    def _check_handshake(self, size: int, *, is_end: bool) -> None:
        self._handshake_bytes += size
        self._record_count += is_end
        if self._handshake_bytes > MAX_HANDSHAKE_BYTES or self._record_count > MAX_HANDSHAKE_RECORDS:
            raise EgressRefused(Verdict.TLS_FAILED, "a handshake without end")

    def _check_flow(self, size: int, *, is_end: bool, has_data: bool) -> None:
        self._record_bytes += size
        if not is_end:
            return
        self._record_count += 1
        if not has_data:
            self._dataless_count += 1
            self._dataless_bytes += self._record_bytes
        self._record_bytes = 0
        if self._dataless_count > MAX_DATALESS_RECORDS or self._dataless_bytes > MAX_DATALESS_BYTES:
            raise EgressRefused(Verdict.TOO_WORDY, "TLS without data")
        if self._record_count > MAX_RECORDS:
            raise EgressRefused(Verdict.TOO_WORDY, "records of TLS")


class RecordCutter:
    """Finds where records of TLS end (RFC 8446 5.1), in whatever pieces they come."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0

    def cut(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """The same bytes, cut behind each record; with each part, whether a record ends with it."""
        start = at = 0
        while at < len(data):
            if len(self._header) < _HEADER_BYTES:
                piece = data[at : at + _HEADER_BYTES - len(self._header)]
                self._header += piece
                at += len(piece)
                if len(self._header) < _HEADER_BYTES:
                    break
                self._left = int.from_bytes(self._header[3:])
            step = min(self._left, len(data) - at)
            self._left -= step
            at += step
            if not self._left:
                self._header.clear()
                yield data[start:at], True
                start = at
        if start < len(data):
            yield data[start:], False
