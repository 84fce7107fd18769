"""How often somebody may fail.

Decides when the next try has to wait, and whose tries are forgotten where there are too many to remember. Must not
know what is tried; it counts under whatever name it is given.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edge.auth.credentials import Headers

CAPACITY = 20_000
_WIDER = {64: 1, 56: 4, 48: 16}
"""Networks of IPv6, and how many times the limit of an address each may use up: a site has all of the last."""


@dataclass(slots=True)
class _Window:
    count: int
    ends_at_s: float


class Limit(Protocol):
    """What counts tries."""

    def wait_of(self, name: str) -> int | None:
        """The whole seconds until the next try, or None if there may be one now."""

    def begin(self, name: str) -> int | None:
        """Count a try; or the whole seconds until the next one, which is then not counted."""

    def forgive(self, name: str) -> None:
        """The try was no failure."""


class FailureLimit:
    """At most `most` failures of one name in a window. A try counts until it is known to be none.

    Counting first means that tries sent at once pass the limit no more than tries sent one by one. What it remembers
    is bounded: whoever failed least is forgotten first, so that a flood of names makes nobody's guesses new ones.
    Where all that is remembered is at its limit, it is strangers who wait.
    """

    def __init__(self, most: int, window_s: float, clock: Callable[[], float], *, capacity: int = CAPACITY) -> None:
        """`clock` gives monotonic seconds."""
        self._most = most
        self._window_s = window_s
        self._clock = clock
        self._capacity = capacity
        self._windows: OrderedDict[str, _Window] = OrderedDict()  # all are equally long, so the first ends first
        self._names: dict[int, OrderedDict[str, None]] = {}  # by their counts, oldest first

    def __len__(self) -> int:
        return len(self._windows)

    def wait_of(self, name: str) -> int | None:
        """The whole seconds until the next try, or None if there may be one now."""
        now_s = self._clock()
        self._forget_ended(now_s)
        window = self._windows.get(name)
        if window is None:
            is_full = len(self._windows) >= self._capacity and min(self._names) >= self._most
            window = next(iter(self._windows.values())) if is_full else None
        elif window.count < self._most:
            return None
        return None if window is None else max(1, math.ceil(window.ends_at_s - now_s))

    def begin(self, name: str) -> int | None:
        """Count a try; or the whole seconds until the next one, which is then not counted."""
        if (wait_s := self.wait_of(name)) is not None:
            return wait_s
        window = self._windows.get(name)
        if window is None:
            if len(self._windows) >= self._capacity:
                self._forget(next(iter(self._names[min(self._names)])))
            window = self._windows[name] = _Window(0, self._clock() + self._window_s)
        self._recount(name, window, window.count + 1)
        return None

    def forgive(self, name: str) -> None:
        """The try was no failure."""
        window = self._windows.get(name)
        if window is not None:
            self._recount(name, window, window.count - 1)
            if not window.count:
                del self._windows[name]

    def _recount(self, name: str, window: _Window, count: int) -> None:
        self._unlist(name, window.count)
        window.count = count
        if count:
            self._names.setdefault(count, OrderedDict())[name] = None

    def _unlist(self, name: str, count: int) -> None:
        names = self._names.get(count)
        if names is not None:
            names.pop(name, None)
            if not names:
                del self._names[count]

    def _forget(self, name: str) -> None:
        self._unlist(name, self._windows.pop(name).count)

    def _forget_ended(self, now_s: float) -> None:
        while self._windows:
            name, window = next(iter(self._windows.items()))
            if now_s < window.ends_at_s:
                return
            self._forget(name)


class AddressLimit:
    """The same for what `address_of` tells: an IPv6 network counts as itself, and in those around it.

    These are remembered apart, so that one site's many networks are a few names among the sites.
    """

    def __init__(self, most: int, window_s: float, clock: Callable[[], float], *, capacity: int = CAPACITY) -> None:
        """`clock` gives monotonic seconds."""
        self._limits = {
            bits: FailureLimit(most * times, window_s, clock, capacity=capacity) for bits, times in _WIDER.items()
        }

    def wait_of(self, name: str) -> int | None:
        """The whole seconds until the next try, or None if there may be one now."""
        return _wait_of(self._tries(name))

    def begin(self, name: str) -> int | None:
        """Count a try; or the whole seconds until the next one, which is then not counted."""
        return begin_all(self._tries(name))

    def forgive(self, name: str) -> None:
        """The try was no failure."""
        for limit, network in self._tries(name):
            limit.forgive(network)

    def _tries(self, name: str) -> list[tuple[Limit, str]]:
        if "/" not in name:
            return [(self._limits[64], name)]
        network = ipaddress.IPv6Network(name)
        return [(limit, str(network.supernet(new_prefix=bits))) for bits, limit in self._limits.items()]


def begin_all(tries: Sequence[tuple[Limit, str]]) -> int | None:
    """Count one try under several names; or under none of them, if any has to wait, and how many seconds."""
    if (wait_s := _wait_of(tries)) is not None:
        return wait_s
    for limit, name in tries:
        limit.begin(name)
    return None


def _wait_of(tries: Sequence[tuple[Limit, str]]) -> int | None:
    return max((wait_s for limit, name in tries if (wait_s := limit.wait_of(name)) is not None), default=None)


def is_inside(address: str) -> bool:
    """Whether an address of `address_of` is this machine's, a private network's, or one of a provider's between the
    two (RFC 6598): many may stand behind it.
    """
    try:
        return not ipaddress.ip_network(address).is_global
    except ValueError:
        return True


def address_of(remote: str | None, headers: Headers, trusted_proxies: int) -> str:
    """Who counts as one for a limit: an IPv4 address, or the /64 of an IPv6 one, which is one customer's.

    Args:
        remote: the other end of the connection.
        trusted_proxies: how many proxies in front append to `X-Forwarded-For`; what stands left of their entries is
            the caller's own word.
    """
    hop = _hop(headers, trusted_proxies)
    text = _without_port((remote or "") if hop is None else hop)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)


def _hop(headers: Headers, trusted_proxies: int) -> str | None:
    """What the first of our proxies said: only the last entries are looked at, whatever stands before them."""
    said = headers.getall("X-Forwarded-For", ())
    if not said or not trusted_proxies:
        return None
    hops = ",".join(said).rsplit(",", trusted_proxies)[-trusted_proxies:]
    return hops[0].strip() if len(hops) == trusted_proxies else None


def _without_port(text: str) -> str:
    """`192.0.2.1:1234` and `[2001:db8::1]:1234`, as some proxies write them."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
