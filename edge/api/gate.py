"""How often, and how often at once, one caller may ask on the routes beside inference, and how often for models.

Decides who counts as one there: a user with all his sessions, tokens and keys, a key that no user made with all that
were made with it, an address; and with several times as much an organization, and a network of addresses. What others
used up leaves everybody with a credential a small part that is his alone. Must not know any route.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

from aiohttp import web

from edge.auth.authenticate import Authenticator, Identity, KeyIdentity
from edge.auth.failures import address_of, is_inside
from edge.auth.key_record import KeyRecord
from edge.rates import Allowance, Rates
from shared.errors import RATE_LIMITED, ApiError
from shared.web import CONTEXT

MANY = 5
"""How many times as much as one caller those have who may be many."""
SURE = 0.1
"""The part of one caller's allowance that each credential has for itself: with it one can look, and end things."""
LISTS = 10
"""How many times as often as all else one may ask which models there are: each client does when it starts."""
AT_ONCE = 8
AT_ONCE_OF_MANY = 16
"""Half of the connections to Redis, and none of those on which keys and sessions are looked up."""
AT_ONCE_SURELY = 2
_SITE_BITS = 48
"""What a provider gives to one customer at most: 65,536 of the networks that count as one address."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One for whom a request counts. `at_once`: how many of his may run, where that is bounded."""

    name: str
    words: str
    times: float = 1
    at_once: int | None = AT_ONCE


Way = list[Asker]
"""All for whom a request counts together: each must have room. Of several ways, the first that has it is taken."""


class Place:
    """What a request holds while it runs, and not while its caller keeps it waiting."""

    def __init__(self, running: Counter[str], ways: Sequence[Way]) -> None:
        """`running`: how many run for whom."""
        self._running = running
        self._ways = ways
        self._names: list[str] = []

    def take(self) -> None:
        """Begin to run, or to run again.

        Raises:
            ApiError: `RATE_LIMITED`; there is no room.
        """
        full = [self._find_full(way) for way in self._ways]
        if None not in full:
            whose = next(asker.words for asker in full if asker is not None)
            raise ApiError(RATE_LIMITED, f"too many requests at once from {whose}", retry_after_s=1)
        self._names = [asker.name for asker in self._ways[full.index(None)] if asker.at_once is not None]
        self._running.update(self._names)

    def give_back(self) -> None:
        """Stop, if it runs."""
        self._running.subtract(self._names)
        for name in self._names:
            if not self._running[name]:
                del self._running[name]
        self._names = []

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """Let others run within the body.

        Raises:
            ApiError: as `take`, after the body.
        """
        self.give_back()
        yield
        self.take()

    def _find_full(self, way: Way) -> Asker | None:
        return next((one for one in way if one.at_once is not None and self._running[one.name] >= one.at_once), None)


PLACE: web.RequestKey[Place] = web.RequestKey("place", Place)


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
        self._lists = Rates(clock)
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
            self._count([self._list_askers_at(request)])
            raise
        context.facts.update(actor=identity.record.id)
        with self._running_for(request, list_ways_of(identity)):
            yield

    @contextlib.asynccontextmanager
    async def admitted_unknown(self, request: web.Request) -> AsyncIterator[None]:
        """The same for a route that is open to all, whatever credential comes along.

        Raises:
            ApiError: `RATE_LIMITED`; it has to come later.
        """
        with self._running_for(request, [self._list_askers_at(request)]):
            yield

    def count_list(self, identity: Identity) -> None:
        """Count a request for a list of models, which no node does, beside all else.

        Raises:
            ApiError: `RATE_LIMITED`; it has to come later.
        """
        self._take(self._lists, list_ways_of(identity), LISTS)

    @contextlib.contextmanager
    def _running_for(self, request: web.Request, ways: Sequence[Way]) -> Iterator[None]:
        place = request[PLACE] = Place(self._running, ways)
        place.take()
        try:
            self._count(ways)
            yield
        finally:
            place.give_back()

    def _list_askers_at(self, request: web.Request) -> Way:
        return list_askers_at(address_of(request.remote, request.headers, self._trusted_proxies))

    def _count(self, ways: Sequence[Way]) -> None:
        self._take(self._rates, ways, 1)

    def _take(self, rates: Rates, ways: Sequence[Way], times: float) -> None:
        refusals: list[ApiError] = []
        for way in ways:
            refused = rates.take([self._allowance_of(asker, times) for asker in way])
            if refused is None:
                return
            whose = next(asker.words for asker in way if asker.name == refused.name)
            words = f"too many requests a minute from {whose}; retry in {refused.wait_s} s"
            refusals.append(ApiError(RATE_LIMITED, words, retry_after_s=refused.wait_s))
        raise min(refusals, key=lambda refusal: refusal.retry_after_s or 0)

    def _allowance_of(self, asker: Asker, times: float) -> Allowance:
        times *= asker.times
        return Allowance(asker.name, self._per_minute * times, max(1, self._burst * times))


def list_ways_of(identity: Identity) -> list[Way]:
    """For him and his organization; else for the credential alone.

    A user who was thrown out keeps sessions that work in his old organization, and can do nothing there.
    """
    one, credential = _one_of(identity)
    sure = Asker(f"surely {credential}", one.words, SURE, AT_ONCE_SURELY)
    record = identity.record
    if record.org is None or not record.granted:
        return [[one], [sure]]
    return [[one, Asker(f"org {record.org}", "your organization", MANY, AT_ONCE_OF_MANY)], [sure]]


def _one_of(identity: Identity) -> tuple[Asker, str]:
    """Who asks, and with what: of neither can one make many, but by logging in anew each time."""
    if not isinstance(identity, KeyIdentity):
        session = identity.record
        return _user(session.user), f"log-in {session.user} {session.ends_at_s}"  # its end outlasts a new value
    root = _root_of(identity.record)
    one = Asker(f"key {root.id}", "this key and those that it made") if root.made_by is None else _user(root.made_by)
    return one, f"token {root.id}" if root.kind == "pat" else f"keys of {one.name}"


def _user(user_id: str) -> Asker:
    return Asker(f"user {user_id}", "you")


def _root_of(key: KeyRecord) -> KeyRecord:
    while key.parent is not None:
        key = key.parent
    return key


def list_askers_at(address: str) -> Way:
    """An address as `address_of` tells it. One of our own side is a proxy that nobody told us of: many, or all."""
    if is_inside(address):
        return [Asker(f"at {address}", "this address", MANY, None)]
    one, network = Asker(f"at {address}", "this address"), ipaddress.ip_network(address)
    if isinstance(network, ipaddress.IPv4Network) or network.prefixlen <= _SITE_BITS:
        return [one]
    site = network.supernet(new_prefix=_SITE_BITS)
    return [one, Asker(f"at {site}", "this network", MANY, AT_ONCE_OF_MANY)]
