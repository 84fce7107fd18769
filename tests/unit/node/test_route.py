"""Routes as the kernel tells them: real ones in a network of the test's own, and answers made by hand."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from ipaddress import IPv4Address, ip_address

import pytest

from node.images.route import Route, build_request, find_route, parse_answer

HERE = "9.9.9.1 9.9.9.2 9.9.9.77 9.9.9.255 9.9.8.5 11.11.3.4 2a00:1::1 2a00:1::2 2a00:2::5 127.0.0.1 ::1"
NOWHERE = "12.0.0.1 13.0.0.1 14.0.0.1 15.0.0.1 16.0.0.1 2a00:3::1 2a00:4::1 2a00:5::1 2a00:6::1"
OUT = "17.0.0.1 2a00:7::1"
NETWORK = """
link set lo up
addr add 9.9.9.1/24 dev lo
addr add 9.9.9.2/24 dev lo
addr add 9.9.8.5/32 dev lo
addr add 2a00:1::1/64 dev lo
addr add 2a00:1::2/64 dev lo
route add local 11.11.0.0/16 dev lo
route add local 2a00:2::/48 dev lo
route add unreachable 12.0.0.0/8
route add blackhole 13.0.0.0/8
route add prohibit 14.0.0.0/8
route add throw 15.0.0.0/8
route add unreachable 2a00:3::/48
route add blackhole 2a00:4::/48
route add prohibit 2a00:5::/48
route add unicast 17.0.0.0/8 dev lo
route add unicast 2a00:7::/48 dev lo
"""
ASK = "import sys, ipaddress; from node.images.route import find_route\n"
ASK += "for text in sys.argv[1:]: print(find_route(ipaddress.ip_address(text)).name)"


def routes_in_a_network_of_its_own(addresses: list[str]) -> list[str] | None:
    """None where this machine gives nobody a network, or none with all these kinds of routes."""
    script = "set -e\n" + "\n".join(f"ip {line}" for line in NETWORK.strip().splitlines())
    script = script.replace("ip route add local 2a00", "ip -6 route add local 2a00")
    script += f"\nexec '{sys.executable}' -c '{ASK}' {' '.join(addresses)}"
    try:
        ended = subprocess.run(
            ["unshare", "-rn", "sh", "-c", script], capture_output=True, text=True, timeout=30, check=False
        )
    except FileNotFoundError:
        return None
    assert "Traceback" not in ended.stderr
    return ended.stdout.split() if ended.returncode == 0 else None


def test_only_a_route_to_one_other_machine_leads_out() -> None:
    """Second addresses, networks made local, every kind of route that refuses: all by the kernel's own word."""
    expected = {"HERE": HERE.split(), "NOWHERE": NOWHERE.split(), "OUT": OUT.split()}
    asked = [address for addresses in expected.values() for address in addresses]
    told = routes_in_a_network_of_its_own(asked)
    if told is not None:
        assert dict(zip(asked, told, strict=True)) == {
            address: name for name, addresses in expected.items() for address in addresses
        }
    for text in ("127.0.0.1", "127.255.3.4", "127.0.0.2"):  # wherever this runs
        assert find_route(ip_address(text)) is Route.HERE


def answer_of(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


@pytest.mark.parametrize(
    ("kind", "route"),
    [
        (0, Route.HERE),  # unspecified
        (1, Route.OUT),
        (2, Route.HERE),  # local
        (3, Route.HERE),  # broadcast
        (4, Route.HERE),  # anycast
        (5, Route.HERE),  # multicast
        *((number, Route.NOWHERE) for number in (6, 7, 8, 9)),
        *((number, Route.HERE) for number in (10, 11, 12, 255)),
    ],
)
def test_only_unicast_leads_out(kind: int, route: Route) -> None:
    assert parse_answer(answer_of(24, bytes([2, 32, 0, 0, 0, 0, 0, kind]) + bytes(4))) is route


@pytest.mark.parametrize(
    "code", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP]
)
def test_no_route_is_an_answer(code: int) -> None:
    assert parse_answer(answer_of(2, struct.pack("=i", -code))) is Route.NOWHERE


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        bytes(15),
        answer_of(2, b""),
        answer_of(2, struct.pack("=i", -errno.ENOMEM)),
        answer_of(2, struct.pack("=i", -errno.EPERM)),
        answer_of(2, bytes(4)),
        answer_of(3, b""),
        answer_of(24, b"\2"),
        answer_of(25, bytes(12)),
    ],
)
def test_any_other_answer_is_an_error(answer: bytes) -> None:
    with pytest.raises(OSError, match=r"."):
        parse_answer(answer)


def test_a_question_names_the_whole_address() -> None:
    request = build_request(IPv4Address("1.2.3.4"))
    assert struct.unpack_from("=I", request)[0] == len(request) == 36
    assert request[16:18] == bytes([2, 32])
    assert request.endswith(bytes([1, 2, 3, 4]))
