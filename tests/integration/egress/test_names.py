"""What is taken from an answer of DNS, and how much of one is read at all."""

from __future__ import annotations

import pycares
import pytest

from node.images.names import Names, find_addresses
from node.images.verdict import EgressRefused
from tests.integration.egress.lab import Lab

IN, CHAOS = pycares.QUERY_CLASS_IN, pycares.QUERY_CLASS_CHAOS


def address(name: str, text: str, record_class: int = IN) -> pycares.DNSRecord:
    data = pycares.AAAARecordData(addr=text) if ":" in text else pycares.ARecordData(addr=text)
    kind = pycares.QUERY_TYPE_AAAA if ":" in text else pycares.QUERY_TYPE_A
    return pycares.DNSRecord(name=name, type=kind, record_class=record_class, ttl=1, data=data)


def alias(name: str, target: str, record_class: int = IN) -> pycares.DNSRecord:
    data = pycares.CNAMERecordData(cname=target)
    return pycares.DNSRecord(name=name, type=pycares.QUERY_TYPE_CNAME, record_class=record_class, ttl=1, data=data)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([address("a.b", "1.1.1.1"), address("a.b", "2600::1")], ["1.1.1.1", "2600::1"]),
        ([address("A.B.", "1.1.1.1")], ["1.1.1.1"]),
        ([address("x.b", "1.1.1.1")], []),
        ([address("", "1.1.1.1")], []),
        ([address("a.b", "1.1.1.1", CHAOS)], []),
        ([alias("a.b", "c.d"), address("c.d", "1.1.1.1"), address("x.d", "2.2.2.2")], ["1.1.1.1"]),
        ([alias("a.b", "C.d"), alias("c.D", "e.f."), address("E.F", "1.1.1.1")], ["1.1.1.1"]),
        ([alias("x.b", "c.d"), address("c.d", "1.1.1.1")], []),
        ([alias("a.b", "c.d", CHAOS), address("c.d", "1.1.1.1")], []),
        ([alias("a.b", "a.b"), address("a.b", "1.1.1.1")], ["1.1.1.1"]),
    ],
)
def test_only_addresses_of_the_name_and_its_aliases_count(records: list[pycares.DNSRecord], found: list[str]) -> None:
    assert find_addresses("a.b", records) == found


async def test_what_no_datagram_holds_is_not_asked_again_by_tcp(lab: Lab) -> None:
    """64 KiB of an answer could hold Python for a second."""
    lab.names.resolver.load({"a.lab.example": {"A": [f"127.0.7.{number}" for number in range(200)]}})
    with pytest.raises(EgressRefused):
        await Names([lab.names.address], 1.5).load_addresses("a.lab.example")
    assert lab.names.resolver.asked == {("a.lab.example", "A"): 1, ("a.lab.example", "AAAA"): 1}
