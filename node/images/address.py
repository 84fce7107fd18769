"""An IP address to a verdict: may this node connect to it?

Decides by tables of its own, made from IANA's special-purpose registries and what clouds add to them. The standard
library's `is_global` is no help: it passes NAT64, 6to4, site-local and multicast addresses. Must not know names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from node.images.route import Route, find_route
from node.images.verdict import Verdict

Network = IPv4Network | IPv6Network

IPV4_TABLE: dict[IPv4Network, Verdict] = {
    IPv4Network(text): verdict
    for text, verdict in (
        ("0.0.0.0/8", Verdict.RESERVED),  # "this network"; Linux takes 0.0.0.0 for loopback
        ("10.0.0.0/8", Verdict.PRIVATE),
        ("100.64.0.0/10", Verdict.SHARED),  # carrier NAT, overlay networks, one cloud's metadata
        ("127.0.0.0/8", Verdict.LOOPBACK),
        ("161.26.0.0/16", Verdict.PLATFORM),  # services of one cloud for its own machines, at public addresses
        ("166.8.0.0/14", Verdict.PLATFORM),  # more of the same cloud's
        ("168.63.129.16/32", Verdict.PLATFORM),  # another cloud's host agent
        ("169.254.0.0/16", Verdict.LINK_LOCAL),  # metadata of most clouds
        ("172.16.0.0/12", Verdict.PRIVATE),
        ("192.0.0.0/24", Verdict.SPECIAL_PURPOSE),  # 192.0.0.192 is metadata too
        ("192.0.2.0/24", Verdict.DOCUMENTATION),
        ("192.31.196.0/24", Verdict.SPECIAL_PURPOSE),
        ("192.52.193.0/24", Verdict.SPECIAL_PURPOSE),
        ("192.88.99.0/24", Verdict.SPECIAL_PURPOSE),  # 6to4 relays
        ("192.168.0.0/16", Verdict.PRIVATE),
        ("192.175.48.0/24", Verdict.SPECIAL_PURPOSE),
        ("198.18.0.0/15", Verdict.SPECIAL_PURPOSE),
        ("198.51.100.0/24", Verdict.DOCUMENTATION),
        ("199.36.153.4/30", Verdict.PLATFORM),  # a third one's APIs, as its networks alone reach them
        ("199.36.153.8/30", Verdict.PLATFORM),
        ("203.0.113.0/24", Verdict.DOCUMENTATION),
        ("224.0.0.0/4", Verdict.MULTICAST),
        ("240.0.0.0/4", Verdict.RESERVED),
    )
}
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""Whatever lies outside is refused; the table only gives a name to the reason. The first match wins."""
IPV6_TABLE: dict[IPv6Network, Verdict] = {
    IPv6Network(text): verdict
    for text, verdict in (
        ("::1/128", Verdict.LOOPBACK),
        ("::/128", Verdict.RESERVED),
        ("::/96", Verdict.CARRIES_IPV4),  # "compatible"
        ("::ffff:0:0/96", Verdict.CARRIES_IPV4),  # mapped
        ("::ffff:0:0:0/96", Verdict.CARRIES_IPV4),  # translated
        ("64:ff9b::/96", Verdict.CARRIES_IPV4),  # NAT64
        ("64:ff9b:1::/48", Verdict.CARRIES_IPV4),  # NAT64 of a site
        ("100::/64", Verdict.SPECIAL_PURPOSE),
        ("5f00::/16", Verdict.SPECIAL_PURPOSE),
        ("fc00::/7", Verdict.PRIVATE),  # metadata of two clouds
        ("fe80::/10", Verdict.LINK_LOCAL),
        ("fec0::/10", Verdict.PRIVATE),  # site-local
        ("ff00::/8", Verdict.MULTICAST),
        ("2001::/32", Verdict.CARRIES_IPV4),  # Teredo
        ("2001::/23", Verdict.SPECIAL_PURPOSE),
        ("2001:db8::/32", Verdict.DOCUMENTATION),
        ("2002::/16", Verdict.CARRIES_IPV4),  # 6to4
        ("2600:2d00:2:1000::/64", Verdict.PLATFORM),  # the third one's APIs again
        ("2600:2d00:2:2000::/64", Verdict.PLATFORM),
        ("2620:4f:8000::/48", Verdict.SPECIAL_PURPOSE),
        ("3ffe::/16", Verdict.RESERVED),
        ("3fff::/20", Verdict.DOCUMENTATION),
    )
}
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The upper half of an interface identifier whose lower half is an IPv4 address (RFC 5214)."""
_OF_ROUTES = {
    Route.OUT: Verdict.PUBLIC_ADDRESS,
    Route.NOWHERE: Verdict.NO_ROUTE,
    Route.HERE: Verdict.OWN_ADDRESS,
}


@dataclass(frozen=True, slots=True)
class AddressRules:
    """What the operator adds to the tables.

    Attributes:
        allow: networks that pass whatever the tables say; empty in production.
        deny: networks that never pass: the node's address behind a NAT, its sisters, a NAT64 prefix of the site.
    """

    allow: Collection[Network] = ()
    deny: Collection[Network] = ()

    def judge(self, text: str) -> Verdict:
        """The verdict on one address, as DNS or a socket address spells it.

        Raises:
            OSError: whether it leads to this machine itself could not be found out.
        """
        if "%" in text:  # a zone: the same address would match no table
            return Verdict.ZONED
        try:
            address = ip_address(text)
        except ValueError:
            return Verdict.NOT_AN_ADDRESS
        if any(address in network for network in self.deny):
            return Verdict.DENIED_ADDRESS
        if any(address in network for network in self.allow):
            return Verdict.ALLOWED_ADDRESS
        verdict = classify_address(address)
        return _OF_ROUTES[find_route(address)] if verdict is Verdict.PUBLIC_ADDRESS else verdict


def classify_address(address: IPv4Address | IPv6Address) -> Verdict:
    """What the tables say, without a look at this machine."""
    if isinstance(address, IPv4Address):
        return next(
            (verdict for network, verdict in IPV4_TABLE.items() if address in network), Verdict.PUBLIC_ADDRESS
        )
    for network, verdict in IPV6_TABLE.items():
        if address in network:
            return verdict
    if address not in GLOBAL_UNICAST:
        return Verdict.RESERVED
    return Verdict.CARRIES_IPV4 if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP else Verdict.PUBLIC_ADDRESS
