"""Failures are counted in a bounded memory, and nobody can claim to be somebody else."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from edge.auth.failures import FailureLimit, address_of, is_inside


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
    limit = FailureLimit(1, 60, Clock(), capacity=10)
    for at in range(100):
        limit.begin(str(at))
    assert len(limit) == 10
    assert limit.begin("99") is not None
    assert limit.begin("0") is None


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
    [("127.0.0.1", True), ("10.1.2.3", True), ("fd00:1:2:3::/64", True), ("unknown", True), ("8.8.8.8", False)],
)
def test_a_private_address_may_be_many(address: str, verdict: bool) -> None:
    assert is_inside(address) == verdict
