"""How often somebody may fail.

Decides when the next try has to wait. Must not know what is tried; it counts under whatever name it is given.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from edge.auth.credentials import Headers

CAPACITY = 20_000


@dataclass(slots=True)
class _Window:
    count: int
    ends_at_s: float


class FailureLimit:
    """At most `most` failures of one name in a window. A try counts until it is known to be none.

    Counting first means that tries sent at once pass the limit no more than tries sent one by one. What it remembers
    is bounded; the window that was longest ago begun is forgotten first.
    """

    def __init__(self, most: int, window_s: float, clock: Callable[[], float], *, capacity: int = CAPACITY) -> None:
        """`clock` gives monotonic seconds."""
        self._most = most
        self._window_s = window_s
        self._clock = clock
        self._capacity = capacity
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def wait_of(self, name: str) -> int | None:
        """The whole seconds until the next try, or None if there may be one now."""
        now_s = self._clock()
        window = self._windows.get(name)
        if window is None or window.count < self._most or now_s >= window.ends_at_s:
            return None
        return max(1, math.ceil(window.ends_at_s - now_s))

    def begin(self, name: str) -> int | None:
        """Count a try; or the whole seconds until the next one, which is then not counted."""
        if (wait_s := self.wait_of(name)) is not None:
            return wait_s
        now_s = self._clock()
        window = self._windows.get(name)
        if window is None or now_s >= window.ends_at_s:
            self._windows.pop(name, None)
            window = self._windows[name] = _Window(0, now_s + self._window_s)
            if len(self._windows) > self._capacity:
                self._windows.popitem(last=False)
        window.count += 1
        return None

    def forgive(self, name: str) -> None:
        """The try was no failure."""
        window = self._windows.get(name)
        if window is not None and window.count > 0:
            window.count -= 1


def is_inside(address: str) -> bool:
    """Whether an address of `address_of` is this machine's or a private network's: many may stand behind it."""
    try:
        return ipaddress.ip_network(address).is_private
    except ValueError:
        return True


def address_of(remote: str | None, headers: Headers, trusted_proxies: int) -> str:
    """Who counts as one for a limit: an IPv4 address, or the /64 of an IPv6 one, which is one customer's.

    Args:
        remote: the other end of the connection.
        trusted_proxies: how many proxies in front append to `X-Forwarded-For`; what stands left of their entries is
            the caller's own word.
    """
    hops = [hop.strip() for value in headers.getall("X-Forwarded-For", ()) for hop in value.split(",")]
    text = hops[-trusted_proxies] if 0 < trusted_proxies <= len(hops) else remote or ""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)
