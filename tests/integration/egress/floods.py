"""Servers that send TLS and hardly any data: what OpenSSL reads without a word to whoever asked it for data.

No TLS library sends such things, so the records are made here: `ssl` shakes hands, its key log tells the secret, and
from there on every record is this file's (RFC 8446 5.2 and 7.1). The floods of plain TCP need no certificate.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.integration.egress.behaviours import PNG, Gone, chunk, put, put_forever, with_length

BURST_BYTES = 200_000
"""What is made before it is sent, so that much of it lies ready at once."""
_ALERT, _HANDSHAKE, _DATA = 21, 22, 23
_HEAD = with_length(PNG.ljust(10_000_000, b"\0"))[:200]
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(PNG)
_TICKET_BODY = struct.pack(">II", 7200, 0) + b"\0" + b"\0\1x" + b"\0\0"  # no nonce, a ticket of one byte
_TICKET = b"\x04" + len(_TICKET_BODY).to_bytes(3, "big") + _TICKET_BODY
PLAIN_FLOODS = {
    "hello-requests": b"\x16\3\3\0\4" + bytes(4),
    "packed-hello-requests": b"\x16\3\3\x40\0" + bytes(16_384),
    "warnings": b"\x15\3\3\0\2\1\x5a",
    "cipher-changes": b"\x14\3\3\0\1\1",
    "empty-handshakes": b"\x16\3\3\0\0",
    "endless-message": b"\x16\3\3\x40\0" + b"\2\xff\xff\xff" + bytes(16_380),
    "junk": b"HTTP/1.1 400 Bad Request\r\n",
}
"""What a server without any certificate can say after a client's hello, by name."""
Burst = Callable[["Records"], Iterator[bytes]]


class Records:
    """Makes the server's records of one connection, from its first after the handshake."""

    def __init__(self, secret: bytes, cipher: str) -> None:
        self._hash, self._key_bytes = ("sha384", 32) if cipher == "TLS_AES_256_GCM_SHA384" else ("sha256", 16)
        assert "AES" in cipher
        self._begin(secret)

    def seal(self, kind: int, data: bytes, *, padding: int = 0) -> bytes:
        """One record; what is in it is hidden as application data."""
        inner = data + bytes([kind]) + bytes(padding)
        header = struct.pack(">BHH", _DATA, 0x0303, len(inner) + 16)
        nonce = (self._iv ^ self._number).to_bytes(12, "big")
        self._number += 1
        return header + self._cipher.encrypt(nonce, inner, header)

    def update_key(self, *, asks: bool) -> bytes:
        """A KeyUpdate, after which all is sealed with another key."""
        record = self.seal(_HANDSHAKE, b"\x18\0\0\1" + bytes([asks]))
        self._begin(self._expand(self._secret, "traffic upd", len(self._secret)))
        return record

    def _begin(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self._cipher = AESGCM(self._expand(secret, "key", self._key_bytes))
        self._iv = int.from_bytes(self._expand(secret, "iv", 12), "big")

    def _expand(self, secret: bytes, label: str, size: int) -> bytes:
        """HKDF-Expand-Label, for sizes of one block."""
        full = b"tls13 " + label.encode()
        info = struct.pack(">HB", size, len(full)) + full + b"\0"
        return hmac.digest(secret, info + b"\1", self._hash)[:size]


def _bursts() -> dict[str, Burst]:
    def forever(head: bytes, make: Callable[[Records], bytes]) -> Burst:
        def burst(records: Records) -> Iterator[bytes]:
            if head:
                yield records.seal(_DATA, head)
            while True:
                yield make(records)

        return burst

    def between(records: Records) -> bytes:
        tickets = b"".join(records.seal(_HANDSHAKE, _TICKET) for _ in range(20))
        return tickets + records.seal(_DATA, b"\0")

    return {
        "/key-updates": forever(_HEAD, lambda records: records.update_key(asks=False)),
        "/key-updates-asked": forever(_HEAD, lambda records: records.update_key(asks=True)),
        "/key-updates-first": forever(b"", lambda records: records.update_key(asks=False)),
        "/tickets": forever(_HEAD, lambda records: records.seal(_HANDSHAKE, _TICKET)),
        "/tickets-packed": forever(_HEAD, lambda records: records.seal(_HANDSHAKE, _TICKET * 700)),
        "/tickets-between": forever(_HEAD, between),
        "/one-byte": forever(_HEAD, lambda records: records.seal(_DATA, b"\0")),
        "/one-byte-chunked": forever(_CHUNKED_HEAD, lambda records: records.seal(_DATA, b"1\r\nx\r\n")),
        "/empty-records": forever(_HEAD, lambda records: records.seal(_DATA, b"")),
        "/padding": forever(_HEAD, lambda records: records.seal(_DATA, b"", padding=16_000)),
        "/warnings": forever(_HEAD, lambda records: records.seal(_ALERT, b"\x01\x5a")),
    }


BURSTS = _bursts()


async def flood_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Wait for a hello and answer it with one thing for ever."""
    await reader.read(65_536)
    await put_forever(writer, piece * (BURST_BYTES // len(piece)))


class FloodServer:
    """Serves `BURSTS` by path, over TLS 1.3."""

    def __init__(self, context: ssl.SSLContext, key_log: Path) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # else OpenSSL would have sent records of its own
        context.keylog_filename = str(key_log)
        self._context, self._key_log = context, key_log

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]
    ) -> None:
        """One connection; `note` is told the head of the request."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(incoming, outgoing, server_side=True)
        hello = raw = await reader.read(65_536)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not raw:
                raise Gone
            incoming.write(raw)
            try:
                tls.do_handshake()
                head += tls.read(65_536)
            except ssl.SSLWantReadError:
                await put(writer, outgoing.read())
                raw = await reader.read(65_536)
        note(head)
        path = head.split(b" ", 2)[1].decode("latin-1").partition("?")[0]
        suite = tls.cipher()
        assert suite
        burst = BURSTS[path](Records(self._secret_of(hello[11:43]), suite[0]))
        while True:
            data = bytearray()
            while len(data) < BURST_BYTES:
                data += next(burst)
            await put(writer, bytes(data))

    def _secret_of(self, client_random: bytes) -> bytes:
        label = f"SERVER_TRAFFIC_SECRET_0 {client_random.hex()} "
        return next(
            bytes.fromhex(line.removeprefix(label))
            for line in self._key_log.read_text().splitlines()
            if line.startswith(label)
        )
