"""Image URLs of a request to bytes, without ever going where a stranger must not send this node.

Decides the order of the checks and what bounds a fetch: time, bytes, redirects, how many at once. The checks are
elsewhere: `url`, `names`, `address`, `dial`, `answer`. Must not know blocks, callers or decoding.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from node.images.address import AddressRules
from node.images.answer import AnswerReader, Image, Redirect
from node.images.dial import Dialer
from node.images.lanes import run_until_failure
from node.images.names import Names
from node.images.tls import MAX_HANDSHAKE_BYTES, build_tls_context
from node.images.url import Target, parse_url, resolve_redirect
from node.images.verdict import PASSING, EgressCounts, EgressRefused, Verdict
from node.settings import EgressSection
from node.shares import Shares
from shared.errors import BACKEND_UNAVAILABLE, ApiError

MAX_URLS = 20
MAX_FETCHES_OF_A_REQUEST = 4
MAX_FETCHES = 16
MAX_FETCHES_OF_A_PAYER = 12
"""Servers can be slow on purpose: so many of the places at most are one payer's."""
_RETRY_AFTER_S = 2
_log = logging.getLogger("b3os.egress")
T = TypeVar("T")


class ByteMeter(Protocol):
    """Whoever pays for remote bytes."""

    @property
    def payer(self) -> str:
        """Whose share of the node's fetches it is."""

    async def charge(self, count: int) -> None:
        """Note bytes that have arrived, wanted or not, TLS's own included; 0 before a packet leaves, so that who has
        nothing left asks for nothing.

        Raises:
            ApiError: the budget is spent; the fetch ends with it.
        """

    async def charge_rest(self) -> None:
        """Book what was noted: the last bytes of a request have come.

        Raises:
            ApiError: the budget is spent.
        """


@dataclass(slots=True)
class _Trail:
    """One fetch, for its log line: where it went, never which path, since paths hold signatures."""

    started_s: float
    hop: int = 0
    hosts: list[str] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    received_bytes: int = 0


class EgressGuard:
    """Fetches images for strangers."""

    def __init__(
        self,
        settings: EgressSection,
        counts: EgressCounts | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Read the certificates.

        Raises:
            OSError: the certificates can't be read.
        """
        self._settings = settings
        self._clock = clock
        self._rules = AddressRules(allow=settings.allow_networks, deny=settings.deny_networks)
        self._dialer = Dialer(self._rules, build_tls_context(settings.ca_file), settings.step_s)
        self._names = Names(settings.nameservers, settings.step_s)
        self._places = Shares(MAX_FETCHES, MAX_FETCHES_OF_A_PAYER)
        self._max_received_bytes = max_received_bytes(settings)
        self.counts = EgressCounts() if counts is None else counts

    @property
    def lookups(self) -> int:
        """Names asked of DNS so far: one a hop, so that no second answer can differ from the vetted one."""
        return self._names.lookups

    async def fetch_all(
        self, urls: Iterable[str], use: Callable[[str, bytes], Awaitable[T]], meter: ByteMeter
    ) -> dict[str, T]:
        """Fetch the URLs of one request, each once, and hand each image to `use` as soon as it is there.

        A place is held while a server has it, no longer: what comes after is none of its business. A request holds no
        more of them than it has lanes. The first failure ends the others.

        Raises:
            EgressRefused: with `url`; no packet left if any URL can't be read.
            ApiError: of the meter, or of `use`; or no place came free, which is no server's fault.
        """
        distinct = list(dict.fromkeys(urls))
        if len(distinct) > MAX_URLS:
            raise self._refuse(EgressRefused(Verdict.TOO_MANY_URLS, url=distinct[MAX_URLS]), self._trail())
        targets = {url: self._read(url) for url in distinct}

        async def fetch(url: str) -> T:
            await self._wait_for_place(meter.payer)
            try:
                data = await self._deliver(url, targets[url], meter)
            finally:
                self._places.release(meter.payer)
            return await use(url, data)

        jobs = [functools.partial(fetch, url) for url in distinct]
        return dict(zip(distinct, await run_until_failure(jobs, MAX_FETCHES_OF_A_REQUEST), strict=True))

    async def _wait_for_place(self, payer: str) -> None:
        try:
            async with asyncio.timeout(self._settings.total_s):
                await self._places.acquire(payer)
        except TimeoutError:
            raise ApiError(
                BACKEND_UNAVAILABLE, "too many images are being fetched; retry shortly", retry_after_s=_RETRY_AFTER_S
            ) from None

    def _read(self, url: str) -> Target:
        try:
            return parse_url(url, self._settings.ports)
        except EgressRefused as refused:
            refused.url = url
            raise self._refuse(refused, self._trail()) from None

    async def _deliver(self, url: str, target: Target, meter: ByteMeter) -> bytes:
        """One fetch with its deadline, its log line and its count."""
        trail = self._trail()
        try:
            data = await self._within_limits(target, meter, trail)
        except EgressRefused as refused:
            refused.url, refused.hop = url, trail.hop
            raise self._refuse(refused, trail) from None
        except BaseException as error:
            self._conclude(_verdict_on(error), trail)
            raise
        self._conclude(Verdict.DELIVERED, trail)
        return data

    async def _within_limits(self, target: Target, meter: ByteMeter, trail: _Trail) -> bytes:
        try:
            async with asyncio.timeout(self._settings.total_s):
                await meter.charge(0)
                return await self._follow(target, meter, trail)
        except TimeoutError:
            raise EgressRefused(Verdict.TOO_SLOW) from None

    async def _follow(self, target: Target, meter: ByteMeter, trail: _Trail) -> bytes:
        while trail.hop <= self._settings.max_redirects:
            trail.hosts.append(target.host)
            match await self._exchange(target, meter, trail):
                case Image(data):
                    return data
                case Redirect(location):
                    trail.hop += 1
                    target = resolve_redirect(target, location, self._settings.ports)
        raise EgressRefused(Verdict.TOO_MANY_REDIRECTS)

    async def _exchange(self, target: Target, meter: ByteMeter, trail: _Trail) -> Image | Redirect:
        """One request on a connection of its own: nothing that a server says early or late meets another fetch."""
        addresses = await self._vetted_addresses(target.host, trail)
        answer = AnswerReader(target, self._settings.max_image_bytes)

        async def note(count: int) -> None:
            trail.received_bytes += count
            await meter.charge(count)
            if trail.received_bytes > self._max_received_bytes:
                raise EgressRefused(Verdict.TOO_WORDY, "bytes over all hops")

        async with self._dialer.connected(target, addresses, note) as connection:
            return await connection.exchange(answer.request_bytes, answer.feed)

    async def _vetted_addresses(self, host: str, trail: _Trail) -> list[str]:
        """All of them or none: a name with one bad address is a name under somebody's thumb.

        Only what this machine has no way to is left out: most have none to any IPv6 address.
        """
        addresses = await self._names.load_addresses(host)
        verdicts = {address: self._rules.judge(address) for address in addresses}
        trail.addresses |= {address: verdict.value for address, verdict in verdicts.items()}
        for verdict in verdicts.values():
            if verdict not in PASSING and verdict is not Verdict.NO_ROUTE:
                raise EgressRefused(verdict, host)
        if not (passing := [address for address in addresses if verdicts[address] in PASSING]):
            raise EgressRefused(Verdict.UNREACHABLE, "no route")
        return passing

    def _trail(self) -> _Trail:
        return _Trail(self._clock())

    def _refuse(self, refused: EgressRefused, trail: _Trail) -> EgressRefused:
        self._conclude(refused.verdict, trail, refused.detail)
        return refused

    def _conclude(self, verdict: Verdict, trail: _Trail, detail: str = "") -> None:
        self.counts.add(verdict, trail.received_bytes)
        facts: dict[str, Any] = {
            "verdict": verdict.value,
            "hosts": trail.hosts,
            "addresses": trail.addresses,
            "received_bytes": trail.received_bytes,
            "elapsed_ms": round((self._clock() - trail.started_s) * 1000, 2),
        }
        if detail:
            facts["detail"] = detail
        _log.info("egress", extra={"facts": facts})


def max_received_bytes(settings: EgressSection) -> int:
    """For one image over all hops: heads, framing and records may take an eighth on top of it; the rest is noise."""
    return settings.max_image_bytes * 9 // 8 + 131_072 + (settings.max_redirects + 1) * MAX_HANDSHAKE_BYTES


def _verdict_on(error: BaseException) -> Verdict:
    if isinstance(error, ApiError):
        return Verdict.OVER_BUDGET
    return Verdict.ABANDONED if isinstance(error, asyncio.CancelledError) else Verdict.FAULT
