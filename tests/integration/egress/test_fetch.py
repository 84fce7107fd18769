"""What the guard sends, where it connects, and that nothing around it changes that."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop

from node.images import address
from node.images.dial import choose_addresses
from node.images.fetch import EgressGuard
from node.images.route import Route
from node.images.url import Target
from node.images.verdict import EgressRefused, Verdict
from tests.integration.egress.behaviours import PNG
from tests.integration.egress.conftest import GOOD_ZONE, PATIENT, At, fetch_one, lab_settings, refusal
from tests.integration.egress.lab import GOOD, Lab

HOSTS_FILE = Path("/etc/hosts").read_text().splitlines()


@pytest.fixture
async def guard(lab: Lab) -> EgressGuard:
    """Nothing here is about time."""
    return EgressGuard(lab_settings(lab, **PATIENT))


async def test_the_request_holds_nothing_but_what_every_fetch_holds(lab: Lab, guard: EgressGuard, at: At) -> None:
    assert await fetch_one(guard, at("/ok.png?sig=a%2Fb%2Bc&x=[1]{2}'\"<|>#secret")) == PNG
    lines = lab.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /ok.png?sig=a%2Fb%2Bc&x=[1]{2}'\"<|> HTTP/1.1"
    names = [line.partition(":")[0] for line in lines[1:] if line]
    assert names == ["Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"]
    assert lines[1].startswith("Host: ok.lab.example")
    assert lab.hellos == ["ok.lab.example"]


async def test_cookies_and_referrers_are_not_carried_over_a_redirect(lab: Lab, guard: EgressGuard, at: At) -> None:
    for _ in range(2):
        await fetch_one(guard, at("/to-cookie?%2Fok.png"))
    assert len(lab.requests) == 4
    assert not re.search(rb"(?im)^(cookie|referer|authorization):", b"".join(lab.requests))


async def test_each_hop_is_looked_up_once_and_connected_anew(
    lab: Lab, guard: EgressGuard, at: At, dialled: list[str]
) -> None:
    await fetch_one(guard, at("/hops/3"))
    assert guard.lookups == len(lab.hellos) == len(dialled) == 4
    assert lab.names.resolver.asked == {("ok.lab.example", "A"): 4, ("ok.lab.example", "AAAA"): 4}


async def test_nothing_that_dns_said_is_remembered(lab: Lab, guard: EgressGuard, at: At) -> None:
    url = at("/ok.png")
    answers: list[tuple[dict[str, Any], Verdict]] = [
        ({}, Verdict.NO_ADDRESS),
        ({"ok.lab.example": {}}, Verdict.NO_ADDRESS),
        ({"ok.lab.example": {"A": ["10.0.0.1"]}}, Verdict.PRIVATE),
    ]
    for zone, verdict in answers:
        lab.names.resolver.load(zone)
        assert (await refusal(fetch_one(guard, url))).verdict is verdict
    lab.names.resolver.load(GOOD_ZONE)
    assert await fetch_one(guard, url) == PNG


async def test_an_answer_that_nobody_asked_for_reaches_no_later_fetch(guard: EgressGuard, at: At) -> None:
    for _ in range(3):
        assert await fetch_one(guard, at("/second-later")) == PNG
        assert (await refusal(fetch_one(guard, at("/two-answers")))).verdict is Verdict.MALFORMED
        assert await fetch_one(guard, at("/ok.png")) == PNG


async def test_the_environment_sends_no_fetch_elsewhere(
    lab: Lab, at: At, dialled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Proxies, key logs, host aliases, search domains: the canaries would hear of the proxy."""
    aliases = tmp_path / "aliases"
    aliases.write_text("ok.lab.example evil.example\n")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{lab.port}")
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    monkeypatch.setenv("HOSTALIASES", str(aliases))
    monkeypatch.setenv("LOCALDOMAIN", "evil.example")
    guard = EgressGuard(lab_settings(lab))
    assert await fetch_one(guard, at("/ok.png")) == PNG
    assert dialled == [GOOD]
    assert not (tmp_path / "keys").exists()
    assert {name for name, _ in lab.names.resolver.asked} == {"ok.lab.example"}


async def test_names_of_the_hosts_file_are_unknown(lab: Lab, guard: EgressGuard, dialled: list[str]) -> None:
    """The file itself isn't changed; whatever full names it holds must not be found."""
    named = {name for line in HOSTS_FILE for name in line.partition("#")[0].split()[1:] if "." in name}
    for name in named:
        await refusal(fetch_one(guard, f"https://{name.lower()}/"))
    assert dialled == []


# The last look.


async def note(count: int) -> None:
    """Bytes are free."""


@pytest.mark.parametrize("addresses", [["127.0.0.9"], ["127.0.0.1", "127.0.0.9"], ["::1"]])
async def test_an_address_that_slipped_through_is_refused_when_it_is_dialled(
    guard: EgressGuard, lab: Lab, addresses: list[str], dialled: list[str]
) -> None:
    async def connect() -> None:
        async with guard._dialer.connected(Target("ok.lab.example", lab.port, "/"), addresses, note):
            pass

    assert (await refusal(connect())).verdict is Verdict.LOOPBACK
    assert dialled == []


async def test_beside_a_bad_address_only_the_good_one_is_dialled(
    guard: EgressGuard, lab: Lab, dialled: list[str]
) -> None:
    for addresses in (["127.0.0.9", GOOD], [GOOD, "127.0.0.9"], ["::1", GOOD]):
        async with guard._dialer.connected(Target("ok.lab.example", lab.port, "/"), addresses, note):
            pass
    assert set(dialled) == {GOOD}


async def test_four_addresses_of_a_name_are_tried_and_no_more(
    lab: Lab, guard: EgressGuard, at: At, dialled: list[str]
) -> None:
    url = at("/ok.png")
    dead = [f"127.0.7.{number}" for number in range(201, 216)]
    lab.names.resolver.load({"ok.lab.example": {"A": [*dead, GOOD]}})
    assert (await refusal(fetch_one(guard, url))).verdict is Verdict.UNREACHABLE
    assert dialled == dead[:4]
    lab.names.resolver.load({"ok.lab.example": {"A": [*dead[:3], GOOD, *dead[3:]]}})
    assert await fetch_one(guard, url) == PNG


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        ("1 2 3 4 5", "1 2 3 4"),
        ("1 2 3 a: b: c:", "1 a: 2 b:"),
        ("1 a: b: c: d:", "1 a: b: c:"),
        ("1 2 3 4 5 a:", "1 a: 2 3"),
        ("a:", "a:"),
    ],
)
def test_both_families_have_their_turn(addresses: str, chosen: str) -> None:
    assert choose_addresses(addresses.split()) == chosen.split()


async def test_an_address_without_a_way_is_left_out_and_refuses_nothing(
    lab: Lab, guard: EgressGuard, at: At, dialled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where there is no IPv6. Its own or a private address beside it still would."""
    monkeypatch.setattr(address, "find_route", lambda address: Route.NOWHERE)
    url = at("/ok.png")
    lab.names.resolver.load({"ok.lab.example": {"A": [GOOD], "AAAA": ["2600::1"]}})
    assert await fetch_one(guard, url) == PNG
    assert dialled == [GOOD]
    lab.names.resolver.load({"ok.lab.example": {"AAAA": ["2600::1"]}})
    assert (await refusal(fetch_one(guard, url))).verdict is Verdict.UNREACHABLE
    lab.names.resolver.load({"ok.lab.example": {"A": ["10.0.0.1"], "AAAA": ["2600::1"]}})
    assert (await refusal(fetch_one(guard, url))).verdict is Verdict.PRIVATE
    assert dialled == [GOOD]


async def test_denied_networks_win_over_allowed_ones(lab: Lab, at: At) -> None:
    guard = EgressGuard(lab_settings(lab, deny_networks='["127.0.7.1/32"]'))
    assert (await refusal(fetch_one(guard, at("/ok.png")))).verdict is Verdict.DENIED_ADDRESS


async def test_without_the_tests_settings_the_lab_is_loopback(lab: Lab, at: At) -> None:
    guard = EgressGuard(lab_settings(lab, allow_networks="[]"))
    assert (await refusal(fetch_one(guard, at("/ok.png")))).verdict is Verdict.LOOPBACK


async def test_without_the_tests_roots_no_certificate_of_the_lab_is_good(lab: Lab, at: At) -> None:
    settings = lab_settings(lab).model_copy(update={"ca_file": None})
    guard = EgressGuard(settings)
    assert (await refusal(fetch_one(guard, at("/ok.png")))).verdict is Verdict.BAD_CERTIFICATE


def test_uvloop_comes_to_the_same_ends(lab: Lab, at: At) -> None:
    ends = {
        "/ok.png": Verdict.DELIVERED,
        "/hops/3": Verdict.DELIVERED,
        "/exact": Verdict.DELIVERED,
        "/over": Verdict.TOO_LARGE,
        "/endless": Verdict.TOO_LARGE,
        "/rst": Verdict.INCOMPLETE,
        "/stall": Verdict.STALLED,
        "/slow-head": Verdict.TOO_SLOW,
        "/to?https%3A%2F%2Fmixed.lab.example%2F": Verdict.LOOPBACK,
        "/to?https%3A%2F%2Fselfish.lab.example%2F": Verdict.BAD_CERTIFICATE,
        "/to?https%3A%2F%2Fmute.lab.example%2F": Verdict.UNREACHABLE,
        "/to?https%3A%2F%2Fplain.lab.example%2F": Verdict.TLS_FAILED,
        "/to?https%3A%2F%2Fclosed.lab.example%2F": Verdict.UNREACHABLE,
        "/to?https%3A%2F%2Fsecond.lab.example%2Fok.png": Verdict.DELIVERED,
    }
    hosts = {"mixed": [GOOD, "127.0.0.1"], "selfish": ["127.0.7.3"], "mute": ["127.0.7.6"], "plain": ["127.0.7.5"]}
    hosts |= {"closed": ["127.0.7.9", "127.0.7.98"], "second": ["127.0.7.9", GOOD]}
    lab.names.resolver.load(
        GOOD_ZONE | {f"{name}.lab.example": {"A": addresses} for name, addresses in hosts.items()}
    )
    seen: dict[str, Verdict] = {}

    async def fetch_each() -> None:
        hasty, patient = EgressGuard(lab_settings(lab)), EgressGuard(lab_settings(lab, **PATIENT))
        for path, end in ends.items():
            is_about_time = end in (Verdict.STALLED, Verdict.TOO_SLOW, Verdict.UNREACHABLE)
            try:
                await fetch_one(hasty if is_about_time else patient, lab.url(at(path)))
                seen[path] = Verdict.DELIVERED
            except EgressRefused as refused:
                seen[path] = refused.verdict

    thread = threading.Thread(target=lambda: uvloop.run(fetch_each()))
    thread.start()
    thread.join(600)
    assert seen == ends


def test_the_record_of_connections_would_hear_of_a_bad_one(dialled: list[str]) -> None:
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.7.250", 1)) != 0
    assert dialled == ["127.0.7.250"]
