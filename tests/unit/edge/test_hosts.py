"""Where a cookie counts, and what comes from there."""

from __future__ import annotations

import contextlib

import pytest
from multidict import CIMultiDict
from pydantic import ValidationError

from edge.auth.csrf import TOKEN_HEADER, refuse_other_sites, refuse_without_token
from edge.auth.hosts import Hosts, is_loopback, normalize_host, origins_of
from edge.auth.session_cookie import NAME, extract_values
from edge.settings import EdgeSection
from shared.errors import FORBIDDEN, ApiError

HOSTS = Hosts(("dash.example.com", "127.0.0.1:7700"))


def headers_of(*pairs: tuple[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(pairs)


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (("dash.example.com",), "dash.example.com"),
        (("Dash.Example.Com:443",), "dash.example.com"),
        (("127.0.0.1:7700",), "127.0.0.1:7700"),
        (("127.0.0.1",), None),
        (("127.0.0.1:7701",), None),
        (("dash.example.com:80",), None),
        (("dash.example.com.",), None),
        (("x.dash.example.com",), None),
        (("dash.example.com:443:443",), None),
        (("dash.example.com", "dash.example.com"), None),
        ((" dash.example.com",), None),
        (("",), None),
        ((), None),
    ],
)
def test_a_name_is_compared_whole(sent: tuple[str, ...], found: str | None) -> None:
    assert HOSTS.dashboard_of(headers_of(*(("Host", name) for name in sent))) == found


@pytest.mark.parametrize(
    "name", ["", "https://a.b", "a.b/", "a b", "a.b:", "a.b:x", "a@b", "*.a.b", "[::1", "\u00e4.de"]
)
def test_what_is_no_host_name_is_refused_as_one(name: str) -> None:
    with pytest.raises(ValueError, match="HOST"):
        normalize_host(name)


def test_only_loopback_pages_may_come_without_tls() -> None:
    assert origins_of("dash.example.com") == ("https://dash.example.com",)
    assert origins_of("localhost:7700") == ("https://localhost:7700", "http://localhost:7700")
    assert [is_loopback(name) for name in ("[::1]:7700", "127.0.0.1", "127.0.0.1.example.com")] == [True, True, False]


def test_settings_take_names_as_a_list_or_with_commas_and_keep_both_kinds_apart() -> None:
    section = EdgeSection.model_validate({"dashboard_hosts": "A.example.com:443, b:8443", "api_hosts": ["c"]})
    assert section.list_dashboard_hosts() == ("a.example.com", "b:8443")
    assert EdgeSection.model_validate({}).list_dashboard_hosts() == ("127.0.0.1:7700", "localhost:7700", "[::1]:7700")
    both = {"dashboard_hosts": ["127.0.0.1:7700"], "api_hosts": ["127.0.0.1:7700"]}
    assert EdgeSection.model_validate(both).api_hosts == ("127.0.0.1:7700",)
    for wrong in ({"dashboard_hosts": "a", "api_hosts": "A:443"}, {"api_hosts": "https://a"}, {"api_hosts": 3}):
        with pytest.raises(ValidationError):
            EdgeSection.model_validate(wrong)


SITE = "Sec-Fetch-Site"


@pytest.mark.parametrize(
    ("sent", "passes"),
    [
        ((), True),
        (((SITE, "same-origin"),), True),
        (((SITE, "same-origin"), ("Origin", "https://evil.example")), True),  # a browser's word is enough
        (((SITE, "Same-Origin"),), False),
        (((SITE, ""),), False),
        (((SITE, "same-origin"), (SITE, "cross-site")), False),
        ((("Origin", "https://dash.example.com"),), True),
        ((("Origin", "https://dash.example.com:443"),), False),
        ((("Origin", "http://dash.example.com"),), False),
        ((("Origin", "https://dash.example.com.evil.example"),), False),
        ((("Origin", "https://dash.example.com"), ("Origin", "https://evil.example")), False),
        ((("Origin", "null"),), False),
        ((("Origin", ""),), False),
    ],
)
def test_requests_of_other_sites_are_refused(sent: tuple[tuple[str, str], ...], passes: bool) -> None:
    with contextlib.nullcontext() if passes else pytest.raises(ApiError) as caught:
        refuse_other_sites(headers_of(*sent), "dash.example.com")
    assert caught is None or caught.value.condition == FORBIDDEN


@pytest.mark.parametrize("sent", [(), ("",), ("other",), ("token", "token"), ("token ",), ("\udcff",)])
def test_the_token_is_there_once_and_right(sent: tuple[str, ...]) -> None:
    refuse_without_token(headers_of((TOKEN_HEADER, "token")), "token")
    with pytest.raises(ApiError):
        refuse_without_token(headers_of(*((TOKEN_HEADER, value) for value in sent)), "token")


def test_of_all_cookies_ours_is_found_by_its_whole_name() -> None:
    value = "A" * 43
    sent = headers_of(
        ("Cookie", f"a=b; {NAME}={value};c; ={value}"),
        ("Cookie", f"x{NAME}={value}; {NAME}x={value}; {NAME.lower()}={value}"),
    )
    assert extract_values(sent) == {value}
    assert extract_values(headers_of(("Cookie", f"{NAME}=short"))) == {""}
    assert extract_values(headers_of(("Cookie", f"{NAME}"))) == {""}
    assert extract_values(headers_of(("Cookie", f"{NAME}={'B' * 43}; {NAME}={value}"))) == {value, "B" * 43}
    assert extract_values(headers_of()) == set()
