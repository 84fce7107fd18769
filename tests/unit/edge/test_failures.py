"""Failures are counted in a bounded memory, and nobody can claim to be somebody else."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from edge.auth.failures import AddressLimit, FailureLimit, address_of, begin_all, is_inside


class Clock:
    """Seconds that the test sets."""

    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def test_after_so_many_failures_one_waits_for_the_end_of_the_window() -> None:
    clock = Clock()
    limit = FailureLimit(2, 60, clock)
    assert [limit.begin("a"), limit.begin("a")] == [None, None]
    clock.now_s += 20.5
    assert limit.begin("a") == 40
    assert limit.begin("b") is None
    clock.now_s += 39.4
    assert limit.begin("a") == 1
    clock.now_s += 0.2
    assert limit.begin("a") is None


def test_a_success_counts_for_nothing() -> None:
    limit = FailureLimit(1, 60, Clock())
    for _ in range(5):
        assert limit.begin("a") is None
        limit.forgive("a")
    limit.forgive("a")
    limit.forgive("never seen")
    assert limit.begin("a") is None
    assert limit.begin("a") is not None


def test_memory_is_bounded() -> None:
    limit = FailureLimit(2, 60, Clock(), capacity=10)
    for at in range(100):
        assert limit.begin(str(at)) is None
    assert len(limit) == 10


@pytest.mark.parametrize("failures", [2, 3])
def test_no_flood_of_names_makes_anybodys_failures_forgotten(failures: int) -> None:
    limit = FailureLimit(3, 60, Clock(), capacity=10)
    for _ in range(failures):
        limit.begin("a")
    for at in range(100):
        assert limit.begin(str(at)) is None
    left = [limit.begin("a") for _ in range(4 - failures)]
    assert left == [None] * (3 - failures) + [60]


def test_where_everybody_is_at_his_limit_strangers_wait_for_the_first_to_end() -> None:
    clock = Clock()
    limit = FailureLimit(1, 60, clock, capacity=2)
    limit.begin("a")
    clock.now_s += 10
    limit.begin("b")
    assert (limit.wait_of("c"), limit.begin("c"), len(limit)) == (50, 50, 2)
    clock.now_s += 50
    assert limit.begin("c") is None
    assert (limit.begin("b"), limit.begin("a")) == (10, 10)  # "b" and "c" are at theirs now


def test_what_is_forgiven_leaves_nothing() -> None:
    limit = FailureLimit(3, 60, Clock())
    limit.begin("a")
    limit.forgive("a")
    assert len(limit) == 0


def test_a_try_counts_under_all_of_its_names_or_under_none() -> None:
    clock = Clock()
    one, other = FailureLimit(1, 60, clock), FailureLimit(1, 30, clock)
    assert begin_all([(one, "a"), (other, "x")]) is None
    assert begin_all([(one, "b"), (other, "x")]) == 30
    assert begin_all([(one, "a"), (other, "x")]) == 60
    assert len(one) == 1
    assert one.begin("b") is None


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["begin", "forgive", "wait"])), max_size=80))
def test_it_remembers_what_a_list_of_failures_would(steps: list[tuple[str, str]]) -> None:
    """Without a flood and within one window it is a counter for each name."""
    limit, counted = FailureLimit(3, 60, Clock()), Counter[str]()
    for name, step in steps:
        if step == "begin":
            assert (limit.begin(name) is None) == (counted[name] < 3)
            counted[name] = min(3, counted[name] + 1)
        elif step == "forgive":
            limit.forgive(name)
            counted[name] = max(0, counted[name] - 1)
        else:
            assert (limit.wait_of(name) is None) == (counted[name] < 3)
    assert len(limit) == sum(count > 0 for count in counted.values())


def test_a_site_of_ipv6_is_not_65536_addresses() -> None:
    limit = AddressLimit(2, 60, Clock())
    begun = [limit.begin(f"2001:db8:1:{at:x}::/64") for at in range(0x400)]
    assert begun.count(None) == 2 * 16
    assert begun[:9] == [None] * 8 + [60]  # the first of them are of one /56
    assert limit.begin("2001:db8:2::/64") is None
    assert limit.begin("192.0.2.1") is None


def test_an_address_has_its_own_limit_and_a_success_gives_back_to_all_networks() -> None:
    limit = AddressLimit(2, 60, Clock())
    for name in ("2001:db8:1:2::/64", "192.0.2.1", "unknown"):
        for _ in range(50):
            assert limit.begin(name) is None
            limit.forgive(name)
        assert [limit.begin(name) for _ in range(3)] == [None, None, 60]
        assert limit.wait_of(name) == 60
    assert limit.wait_of("2001:db8:1:3::/64") is None


@pytest.mark.parametrize(
    ("remote", "forwarded", "proxies", "address"),
    [
        ("192.0.2.1", (), 0, "192.0.2.1"),
        ("192.0.2.1", ("198.51.100.7",), 0, "192.0.2.1"),
        ("192.0.2.1", ("1.1.1.1, 198.51.100.7",), 1, "198.51.100.7"),
        ("192.0.2.1", ("1.1.1.1", "198.51.100.7"), 1, "198.51.100.7"),
        ("192.0.2.1", ("1.1.1.1, 198.51.100.7, 10.0.0.1",), 2, "198.51.100.7"),
        ("192.0.2.1", (), 1, "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", (), 0, "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", (), 0, "192.0.2.1"),
        ("192.0.2.1", ("[2001:db8::1]",), 1, "2001:db8::/64"),
        ("192.0.2.1", ("8.8.8.8:1234",), 1, "8.8.8.8"),
        ("192.0.2.1", ("1.1.1.1:1, 198.51.100.7:65535 ,10.0.0.1:2",), 2, "198.51.100.7"),
        ("192.0.2.1", ("[2001:db8:1:2:3::4]:1234",), 1, "2001:db8:1:2::/64"),
        ("192.0.2.1", ("2001:db8:1:2:3::4",), 1, "2001:db8:1:2::/64"),
        ("192.0.2.1", ("[::ffff:8.8.8.8]:80",), 1, "8.8.8.8"),
        ("192.0.2.1", ("8.8.8.8",), 2, "192.0.2.1"),
        ("192.0.2.1", ("8.8.8.8,",), 1, "unknown"),
        ("192.0.2.1", ("8.8.8.8", ""), 1, "unknown"),
        ("192.0.2.1", ("," * 9000, "8.8.8.8"), 1, "8.8.8.8"),
        ("192.0.2.1", ("nonsense",), 1, "unknown"),
        (None, (), 0, "unknown"),
    ],
)
def test_an_address_is_what_a_trusted_proxy_or_the_connection_says(
    remote: str | None, forwarded: tuple[str, ...], proxies: int, address: str
) -> None:
    headers = CIMultiDict([("X-Forwarded-For", value) for value in forwarded])
    assert address_of(remote, headers, proxies) == address


@pytest.mark.parametrize(
    ("address", "verdict"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("100.64.0.1", True),
        ("100.127.255.255", True),
        ("fd00:1:2:3::/64", True),
        ("unknown", True),
        ("8.8.8.8", False),
        ("100.63.255.255", False),
        ("100.128.0.0", False),
        ("2600:1f00:1:2::/64", False),
    ],
)
def test_a_private_address_may_be_many(address: str, verdict: bool) -> None:
    assert is_inside(address) == verdict
