"""The verdicts on addresses: every range at both of its ends and just outside."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.images import address as addresses
from node.images.address import (
    GLOBAL_UNICAST,
    IPV4_TABLE,
    IPV6_TABLE,
    AddressRules,
    classify_address,
)
from node.images.route import Route, find_route
from node.images.verdict import PASSING, Verdict

PRODUCTION = AddressRules()
PUBLIC = "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15 "
PUBLIC += "168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 "
PUBLIC += "161.25.255.255 161.27.0.0 166.7.255.255 166.12.0.0 199.36.153.3 199.36.153.12 "
PUBLIC += "198.17.255.255 198.20.0.0 223.255.255.255 2001:200::1 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1 "
PUBLIC += "2003::1 2620:4f:8001::1 2620:4f:7fff::1 3fff:1000::1 2400::5efe 3ffd:ffff::1"


@pytest.mark.parametrize("text", PUBLIC.split())
def test_public_addresses_pass(text: str) -> None:
    assert classify_address(ip_address(text)) is Verdict.PUBLIC_ADDRESS


@pytest.mark.parametrize("network", [*IPV4_TABLE, *IPV6_TABLE], ids=str)
def test_a_range_is_refused_from_end_to_end(network: IPv4Network | IPv6Network) -> None:
    for address in (network[0], network[-1], network[network.num_addresses // 2]):
        assert classify_address(address) not in PASSING


@pytest.mark.parametrize("network", IPV4_TABLE, ids=str)
def test_beside_an_ipv4_range_another_verdict_begins(network: IPv4Network) -> None:
    for number in (int(network[0]) - 1, int(network[-1]) + 1):
        if 0 < number < 1 << 32:
            beside = IPv4Address(number)
            assert classify_address(beside) is not IPV4_TABLE[network] or any(beside in other for other in IPV4_TABLE)


@given(st.ip_addresses(v=6))
def test_no_ipv6_address_outside_global_unicast_passes(address: IPv6Address) -> None:
    assert address in GLOBAL_UNICAST or classify_address(address) not in PASSING


@given(st.ip_addresses())
def test_what_passes_is_global_to_the_standard_library_too(address: IPv4Address | IPv6Address) -> None:
    """Its tables are no substitute for ours, but nothing that it refuses may pass."""
    if classify_address(address) in PASSING:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_no_ipv4_address_passes_inside_an_ipv6_one(inner: IPv4Address) -> None:
    number = int(inner)
    inverted = number ^ 0xFFFF_FFFF
    carriers = [
        *(prefix | number for prefix in (0, 0xFFFF << 32, 0xFFFF << 48, 0x64_FF9B << 96, (0x64_FF9B_0001 << 80))),
        0x2002 << 112 | number << 80,
        0x2001 << 112 | number << 64 | inverted,
        0x2001 << 112 | inverted,
        *(0x2606_4700 << 96 | mark << 32 | number for mark in (0x5EFE, 0x200_5EFE)),
    ]
    for carrier in carriers:
        assert classify_address(IPv6Address(carrier)) not in PASSING, IPv6Address(carrier)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("fe80::1%eth0", Verdict.ZONED),
        ("2606:4700::1%lo", Verdict.ZONED),
        ("1.1.1.1%1", Verdict.ZONED),
        ("127.1", Verdict.NOT_AN_ADDRESS),
        ("0x7f.0.0.1", Verdict.NOT_AN_ADDRESS),
        ("01.1.1.1", Verdict.NOT_AN_ADDRESS),
        ("\uff11.1.1.1", Verdict.NOT_AN_ADDRESS),
        ("[::1]", Verdict.NOT_AN_ADDRESS),
        ("1.1.1.1 ", Verdict.NOT_AN_ADDRESS),
        ("", Verdict.NOT_AN_ADDRESS),
        ("ok.example.com", Verdict.NOT_AN_ADDRESS),
        ("127.0.0.1", Verdict.LOOPBACK),
        ("::ffff:127.0.0.1", Verdict.CARRIES_IPV4),
        ("168.63.129.16", Verdict.PLATFORM),
    ],
)
def test_a_verdict_has_its_name(text: str, verdict: Verdict) -> None:
    assert PRODUCTION.judge(text) is verdict


def test_the_operators_denials_win_over_his_permissions_and_those_over_the_tables() -> None:
    rules = AddressRules(allow=[ip_network("10.0.0.0/8")], deny=[ip_network("10.1.0.0/16"), ip_network("1.1.1.0/24")])
    assert rules.judge("10.2.0.1") is Verdict.ALLOWED_ADDRESS
    assert rules.judge("10.1.0.1") is Verdict.DENIED_ADDRESS
    assert rules.judge("1.1.1.1") is Verdict.DENIED_ADDRESS
    assert rules.judge("192.168.0.1") is Verdict.PRIVATE
    assert rules.judge("::ffff:10.2.0.1") is Verdict.CARRIES_IPV4


def own_addresses() -> list[str]:
    found = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    texts = [entry.address for entry in found if entry.family in (socket.AF_INET, socket.AF_INET6)]
    return [text for text in texts if not text.startswith("fe80")]


@pytest.mark.parametrize("text", own_addresses())
def test_every_address_of_this_machine_is_its_own(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the tables would let it pass, as they do on a machine with a public address."""
    assert find_route(ip_address(text)) is Route.HERE
    monkeypatch.setattr(addresses, "classify_address", lambda address: Verdict.PUBLIC_ADDRESS)
    assert PRODUCTION.judge(text) is Verdict.OWN_ADDRESS


@pytest.mark.parametrize(
    ("route", "verdict"),
    [
        (Route.OUT, Verdict.PUBLIC_ADDRESS),
        (Route.NOWHERE, Verdict.NO_ROUTE),
        (Route.HERE, Verdict.OWN_ADDRESS),
    ],
)
def test_a_public_address_passes_by_its_route(
    route: Route, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "find_route", lambda address: route)
    assert PRODUCTION.judge("1.1.1.1") is verdict
    assert PRODUCTION.judge("10.0.0.1") is Verdict.PRIVATE
    assert (verdict in PASSING) == (route is Route.OUT)


def test_a_kernel_that_cannot_say_lets_nothing_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptors(*arguments: object) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(socket, "socket", no_descriptors)
    with pytest.raises(OSError, match="too many"):
        PRODUCTION.judge("1.1.1.1")
