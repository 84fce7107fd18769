"""A TLS connection to a host, at addresses that were vetted, vetted again as they are dialled.

Decides how a connection comes about: which socket address, which certificate. Must not know HTTP nor DNS.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohappyeyeballs

from node.images.address import AddressRules
from node.images.url import Target
from node.images.verdict import PASSING, EgressRefused, Verdict

NEXT_ADDRESS_AFTER_S = 0.25
READ_BUFFER_BYTES = 32_768
"""asyncio stops reading from the network when twice as much lies unread."""


def build_tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """A client's context: TLS 1.2 or newer, a chain to a known root, the host's own name.

    Made by hand: `ssl.create_default_context` would write session keys to a file that the environment names.

    Raises:
        OSError: the file can't be read, or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks chain and name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca_file)
    return context


@dataclass(frozen=True, slots=True)
class Dialer:
    """Connects; `limit_s` bounds TCP and TLS together."""

    rules: AddressRules
    context: ssl.SSLContext
    limit_s: float

    @asynccontextmanager
    async def connected(
        self, target: Target, addresses: Sequence[str]
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection for one exchange, cut at the end without a farewell that could keep us waiting.

        Raises:
            EgressRefused: an address may not be dialled, or no secure connection came about.
        """
        try:
            async with asyncio.timeout(self.limit_s):
                plain = await self._dial(addresses, target.port)
                reader, writer = await self._secure(plain, target.host)
        except TimeoutError:
            raise EgressRefused(Verdict.UNREACHABLE, "timed out") from None
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _dial(self, addresses: Sequence[str], port: int) -> socket.socket:
        refused: list[EgressRefused] = []
        try:
            return await aiohappyeyeballs.start_connection(
                [_address_info(address, port) for address in addresses],
                happy_eyeballs_delay=NEXT_ADDRESS_AFTER_S,
                socket_factory=functools.partial(self._make_socket, refused),
            )
        except (OSError, RuntimeError) as error:  # uvloop has RuntimeError for some
            if refused:
                raise refused[0] from None
            raise EgressRefused(Verdict.UNREACHABLE, type(error).__name__) from None

    def _make_socket(self, refused: list[EgressRefused], info: Any) -> socket.socket:
        """The last look: at the socket address that `connect` gets a moment later.

        Raises:
            PermissionError: the only kind of exception that the library above passes on in order.
        """
        family, kind, protocol, _, socket_address = info
        verdict = self.rules.judge(socket_address[0])
        if verdict not in PASSING:
            refused.append(EgressRefused(verdict, f"{socket_address[0]} when dialling"))
            raise PermissionError(verdict)
        return socket.socket(family, kind, protocol)

    async def _secure(self, plain: socket.socket, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_connection(
                sock=plain, ssl=self.context, server_hostname=host, limit=READ_BUFFER_BYTES
            )
        except ssl.SSLCertVerificationError as error:
            raise EgressRefused(Verdict.BAD_CERTIFICATE, error.verify_message) from None
        except OSError as error:  # ssl.SSLError is one
            raise EgressRefused(Verdict.TLS_FAILED, getattr(error, "reason", None) or type(error).__name__) from None


def _address_info(address: str, port: int) -> tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
