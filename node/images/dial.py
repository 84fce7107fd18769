"""A TLS connection to a host, at addresses that were vetted, vetted again as they are dialled.

Decides how a connection comes about and at what pace its bytes are taken in: which socket address, how many attempts,
one piece a turn of the loop. Bytes are noted as they leave the socket, before TLS. Must not know HTTP nor DNS.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, TypeVar

import aiohappyeyeballs

from node.images.address import AddressRules
from node.images.tls import TlsClient
from node.images.url import Target
from node.images.verdict import PASSING, EgressRefused, Verdict

NEXT_ADDRESS_AFTER_S = 0.25
MAX_ATTEMPTS = 4
"""TCP connections that may be begun for one exchange."""
READ_BYTES = 8_192
"""What is taken in, and what is parsed, without a break: about 20 ms for the worst of answers, under 1 ms for an
image."""
Note = Callable[[int], Awaitable[None]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Dialer:
    """Connects; `limit_s` bounds TCP and TLS together, and each step after.

    Attributes:
        turns: held for each piece that is decrypted or parsed, by all connections of a node.
    """

    rules: AddressRules
    context: ssl.SSLContext
    limit_s: float
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def connected(self, target: Target, addresses: Sequence[str], note: Note) -> AsyncIterator[Connection]:
        """A connection for one exchange, cut at the end without a farewell that could keep us waiting.

        Args:
            note: told how many bytes have come, each time and before anything reads them; what it raises ends all.

        Raises:
            EgressRefused: an address may not be dialled, or no secure connection came about.
        """
        with ExitStack() as held:
            try:
                async with asyncio.timeout(self.limit_s):
                    plain = held.enter_context(await self._dial(choose_addresses(addresses), target.port))
                    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection = Connection(
                        plain, TlsClient(self.context, target.host), self.turns, self.limit_s, note
                    )
                    await connection.shake_hands()
            except TimeoutError:
                raise EgressRefused(Verdict.UNREACHABLE, "timed out") from None
            yield connection

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


@dataclass(frozen=True, slots=True)
class Connection:
    """A socket with TLS on it, for one question and its answer."""

    _socket: socket.socket
    _tls: TlsClient
    _turns: asyncio.Lock
    _limit_s: float
    _note: Note

    async def shake_hands(self) -> None:
        """Find out who is there; without a limit of time.

        Raises:
            EgressRefused: nobody, or not the one whom the name belongs to.
        """
        while not self._tls.is_secure:
            with _told_as(Verdict.TLS_FAILED):
                raw = await self._send_and_receive()
            if not raw:
                raise EgressRefused(Verdict.TLS_FAILED, "closed")
            await self._note(len(raw))
            async with self._turns:
                early = self._tls.feed(raw)
                await asyncio.sleep(0)
            if early:
                raise EgressRefused(Verdict.MALFORMED, "an answer before the question")

    async def exchange(self, question: bytes, take: Callable[[bytes], T | None]) -> T:
        """Ask, and hand what comes to `take` until it knows; `b""` at the end.

        Raises:
            EgressRefused: of `take`, or the server went silent, broke off, or said too much.
        """
        self._tls.write(question)
        while not self._tls.is_closed:
            with _told_as(Verdict.INCOMPLETE):
                raw = await self._receive_in_time()
            if not raw:
                break
            await self._note(len(raw))
            async with self._turns:
                if (outcome := await self._hand_over(self._tls.feed(raw), take)) is not None:
                    return outcome
        return self._end(take)

    async def _hand_over(self, data: bytes, take: Callable[[bytes], T | None]) -> T | None:
        """A piece a turn, since a record may hold several; a turn as well for what holds none."""
        for start in range(0, len(data), READ_BYTES):
            if (outcome := take(data[start : start + READ_BYTES])) is not None:
                return outcome
            await asyncio.sleep(0)
        if not data:
            await asyncio.sleep(0)
        return None

    def _end(self, take: Callable[[bytes], T | None]) -> T:
        """An end that TLS doesn't tell of may be anybody's cut, so it can't be what an answer ends with."""
        outcome = take(b"")
        if outcome is None or not self._tls.is_closed:
            raise EgressRefused(Verdict.INCOMPLETE, "no farewell")
        return outcome

    async def _receive_in_time(self) -> bytes:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._send_and_receive()
        except TimeoutError:
            raise EgressRefused(Verdict.STALLED) from None

    async def _send_and_receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        if data := self._tls.take_outgoing():
            await loop.sock_sendall(self._socket, data)
        return await loop.sock_recv(self._socket, READ_BYTES)


@contextmanager
def _told_as(verdict: Verdict) -> Iterator[None]:
    """What goes wrong with the socket, as a decision."""
    try:
        yield
    except OSError as error:
        raise EgressRefused(verdict, type(error).__name__) from None


def choose_addresses(addresses: Sequence[str]) -> list[str]:
    """The first few of both families in turn, in the order of DNS."""
    families = [[address for address in addresses if (":" in address) is is_new] for is_new in (False, True)]
    turns = chain.from_iterable(zip_longest(*families))
    return [address for address in turns if address is not None][:MAX_ATTEMPTS]


def _address_info(address: str, port: int) -> tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
