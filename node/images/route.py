"""Where the kernel would send a packet for an address: the type of its route, asked by netlink.

Decides what counts as another machine's address. An address's name among those of the interfaces is no proof of the
contrary: whole networks can be local (`ip route add local`), and a packet for one's second address starts from the
first. Must not know tables of special addresses. Linux only, and whatever the kernel can't say is an error.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from enum import Enum, auto
from ipaddress import IPv4Address, IPv6Address

_NLMSG_ERROR, _RTM_NEWROUTE, _RTM_GETROUTE = 2, 24, 26
_NLM_F_REQUEST = 1
_RTA_DST = 1
_RTN_UNICAST = 1
_NOWHERE_TYPES = frozenset({6, 7, 8, 9})
"""RTN_BLACKHOLE, RTN_UNREACHABLE, RTN_PROHIBIT, RTN_THROW."""
_NOWHERE_ERRORS = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EACCES, errno.EINVAL, errno.EAGAIN}
    | {errno.EOPNOTSUPP, errno.EAFNOSUPPORT}
)
"""No route; those types where IPv4 tells them so; a kernel without IPv6. None of them is ever dialled."""
_MESSAGE = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
_ANSWER_BYTES = 8_192


class Route(Enum):
    """Where packets for an address go."""

    OUT = auto()
    """Over an interface, to one machine."""
    NOWHERE = auto()
    """There is no way, now."""
    HERE = auto()
    """To this machine itself, or to many at once: whatever is neither of the others."""


def find_route(address: IPv4Address | IPv6Address) -> Route:
    """Ask the kernel; it answers within the call, in some 20 µs.

    Raises:
        OSError: it could not say, for example for want of file descriptors.
    """
    request = build_request(address)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.sendto(request, (0, 0))
        answer, sender = kernel.recvfrom(_ANSWER_BYTES, socket.MSG_DONTWAIT)
    if sender[0] != 0:  # not the kernel's
        raise OSError(errno.EPROTO, "an answer of somebody else about a route")
    return parse_answer(answer)


def build_request(address: IPv4Address | IPv6Address) -> bytes:
    """The question, as `ip route get` puts it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = address.packed
    route = _ROUTE.pack(family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    body = route + _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _RTA_DST) + packed
    return _MESSAGE.pack(_MESSAGE.size + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 1, 0) + body


def parse_answer(answer: bytes) -> Route:
    """What the kernel said.

    Raises:
        OSError: that it couldn't say, or nothing of a route.
    """
    try:
        _, kind, *_ = _MESSAGE.unpack_from(answer)
        if kind == _NLMSG_ERROR:
            code = -_ERROR.unpack_from(answer, _MESSAGE.size)[0]
            if code in _NOWHERE_ERRORS:
                return Route.NOWHERE
            raise OSError(code, os.strerror(code))
        if kind == _RTM_NEWROUTE:
            return _classify_type(_ROUTE.unpack_from(answer, _MESSAGE.size)[7])
    except struct.error:
        pass
    raise OSError(errno.EPROTO, "the kernel's answer about a route is none")


def _classify_type(kind: int) -> Route:
    if kind == _RTN_UNICAST:
        return Route.OUT
    return Route.NOWHERE if kind in _NOWHERE_TYPES else Route.HERE
