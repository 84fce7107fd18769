"""How often, and how often at once, one caller may ask on the routes that are not inference.

Decides who counts as one there: a key, a user with all his sessions, an address; and with several times as much an
organization, and a network of addresses, so that nobody gets more by having many. Must not know any route.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from aiohttp import web

from edge.auth.authenticate import Authenticator, Identity, KeyIdentity
from edge.auth.failures import address_of, is_inside
from edge.rates import Allowance, Rates
from shared.errors import RATE_LIMITED, ApiError
from shared.web import CONTEXT

MANY = 5
"""How many times as much as one caller those have who may be many."""
AT_ONCE = 8
AT_ONCE_OF_MANY = 16
"""Half of the connections to Redis, and none of those on which keys and sessions are looked up."""
_SITE_BITS = 48
"""What a provider gives to one customer at most: 65,536 of the networks that count as one address."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One for whom a request counts. `at_once`: how many of his may run, where that is bounded."""

    name: str
    words: str
    times: int = 1
    at_once: int | None = AT_ONCE


class Gate:
    """Lets requests in."""

    def __init__(
        self,
        authenticator: Authenticator,
        clock: Callable[[], float],
        *,
        per_minute: int,
        burst: int,
        trusted_proxies: int,
    ) -> None:
        """`clock` gives monotonic seconds; `trusted_proxies` as in `address_of`."""
        self._authenticator = authenticator
        self._rates = Rates(clock)
        self._running: Counter[str] = Counter()
        self._per_minute = per_minute
        self._burst = burst
        self._trusted_proxies = trusted_proxies

    @contextlib.asynccontextmanager
    async def admitted(self, request: web.Request) -> AsyncIterator[None]:
        """Let a request of somebody with a good credential run within the body.

        Raises:
            ApiError: as `Authenticator.identify`; or `RATE_LIMITED`: it has to come later.
        """
        context = request[CONTEXT]
        try:
            with context.phases.measure("edge_auth"):
                identity = await self._authenticator.identify(request)
        except ApiError:
            self._count(self._list_askers_at(request))
            raise
        context.facts.update(actor=identity.record.id)
        with self._counted(list_askers_of(identity)):
            yield

    @contextlib.asynccontextmanager
    async def admitted_unknown(self, request: web.Request) -> AsyncIterator[None]:
        """The same for a route that is open to all, whatever credential comes along.

        Raises:
            ApiError: `RATE_LIMITED`; it has to come later.
        """
        with self._counted(self._list_askers_at(request)):
            yield

    @contextlib.contextmanager
    def _counted(self, askers: list[Asker]) -> Iterator[None]:
        self._refuse_crowd(askers)
        self._count(askers)
        names = [asker.name for asker in askers if asker.at_once is not None]
        self._running.update(names)
        try:
            yield
        finally:
            self._running.subtract(names)
            for name in names:
                if not self._running[name]:
                    del self._running[name]

    def _list_askers_at(self, request: web.Request) -> list[Asker]:
        return list_askers_at(address_of(request.remote, request.headers, self._trusted_proxies))

    def _refuse_crowd(self, askers: list[Asker]) -> None:
        for asker in askers:
            if asker.at_once is not None and self._running[asker.name] >= asker.at_once:
                raise ApiError(RATE_LIMITED, f"too many requests at once from {asker.words}", retry_after_s=1)

    def _count(self, askers: list[Asker]) -> None:
        allowances = [
            Allowance(asker.name, self._per_minute * asker.times, self._burst * asker.times) for asker in askers
        ]
        if (refused := self._rates.take(allowances)) is not None:
            whose = next(asker.words for asker in askers if asker.name == refused.name)
            words = f"too many requests a minute from {whose}; retry in {refused.wait_s} s"
            raise ApiError(RATE_LIMITED, words, retry_after_s=refused.wait_s)


def list_askers_of(identity: Identity) -> list[Asker]:
    """A key, or a user: he can have many sessions, and a new one whenever he wants."""
    if isinstance(identity, KeyIdentity):
        one, org = Asker(f"key {identity.record.id}", "this key"), identity.record.org
    else:
        one, org = Asker(f"user {identity.record.user}", "you"), identity.record.org or ""
    many = Asker(f"org {org}", "your organization", MANY, AT_ONCE_OF_MANY)
    return [one, many] if org else [one]


def list_askers_at(address: str) -> list[Asker]:
    """An address as `address_of` tells it. One of our own side is a proxy that nobody told us of: many, or all."""
    if is_inside(address):
        return [Asker(f"at {address}", "this address", MANY, None)]
    one, network = Asker(f"at {address}", "this address"), ipaddress.ip_network(address)
    if isinstance(network, ipaddress.IPv4Network) or network.prefixlen <= _SITE_BITS:
        return [one]
    site = network.supernet(new_prefix=_SITE_BITS)
    return [one, Asker(f"at {site}", "this network", MANY, AT_ONCE_OF_MANY)]
