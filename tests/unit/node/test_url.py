"""The grammar of URLs, by properties; the cases are in `tests/integration/egress/`."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from node.images.url import Target, parse_url, resolve_redirect
from node.images.verdict import EgressRefused, Verdict

PORTS = (443, 8443)
BASE = Target("ok.example.com", 443, "/folder/page?query")
_pieces = st.sampled_from(
    [
        *(
            "https://",
            "http://",
            "//",
            "/",
            "\\",
            "?",
            "#",
            "@",
            ":",
            ":443",
            "[",
            "]",
            "%",
            "%00",
            "%2e",
            ";",
            "&",
            "=",
        ),
        *(
            "ok.example.com",
            "127.0.0.1",
            "0x7f.1",
            "localhost",
            "example",
            "com",
            ".",
            "..",
            "xn--a",
            "-",
            "_",
            "~",
            "1",
        ),
        *("::1", "[::1]", "\t", "\r\n", "\0", " ", "\uff11", "\u3002", "\u24db", "\ud800", "\u200b", "é"),
    ]
)
_texts = st.one_of(st.text(), st.lists(_pieces, max_size=12).map("".join), st.lists(_pieces).map("".join))
_urls = _texts.map("https://".__add__)


def verdict_on(text: str) -> Verdict | None:
    try:
        parse_url(text, PORTS)
    except EgressRefused as refused:
        return refused.verdict
    return None


@given(_texts | _urls | _urls.map("https://ok.example.com".__add__))
def test_what_is_read_is_a_plain_name_and_a_request_line(text: str) -> None:
    try:
        target = parse_url(text, PORTS)
    except EgressRefused:
        return
    assert re.fullmatch(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]([a-z0-9-]*[a-z0-9])?", target.host)
    assert target.port in PORTS
    assert re.fullmatch(r"/[!-~]*", target.path)
    assert "#" not in target.path
    assert "\\" not in target.path


@given(_urls | st.from_regex(r"https://[a-z0-9.-]{1,20}\.com(:[0-9]{1,5})?[/?#!-~]{0,30}", fullmatch=True))
def test_other_parsers_find_the_same_host_in_what_is_read(text: str) -> None:
    try:
        target = parse_url(text, PORTS)
    except EgressRefused:
        return
    assert urlsplit(text).hostname == URL(text).host == target.host
    assert (urlsplit(text).port or 443) == URL(text).port == target.port


@given(st.binary(max_size=60) | _texts.map(lambda text: text.encode("utf-8", "replace")))
def test_a_location_leads_to_what_the_grammar_reads_or_nowhere(location: bytes) -> None:
    try:
        target = resolve_redirect(BASE, location, PORTS)
    except EgressRefused:
        return
    assert parse_url(target.url, PORTS) == target
    # Whatever names no authority of its own stays at this one.
    if b"//" not in location:
        assert (target.host, target.port) == (BASE.host, BASE.port)


@given(_urls)
def test_a_url_is_read_the_same_twice(text: str) -> None:
    try:
        target = parse_url(text, PORTS)
    except EgressRefused:
        return
    assert parse_url(target.url, PORTS) == target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("https://a.com", Target("a.com", 443, "/")),
        ("https://a.com#x?y/@z", Target("a.com", 443, "/")),
        ("https://a.com?x=/../#y", Target("a.com", 443, "/?x=/../")),
        ("https://A.Com:8443/b/../c;d?e=%2F&f=@:[]{}", Target("a.com", 8443, "/b/../c;d?e=%2F&f=@:[]{}")),
        ("https://1.2.3.4.com/", Target("1.2.3.4.com", 443, "/")),
        ("https://a.xn--p1ai/", Target("a.xn--p1ai", 443, "/")),
        ("https://0x7f.0x.com/", Target("0x7f.0x.com", 443, "/")),
    ],
)
def test_a_url_is_read_byte_for_byte(text: str, target: Target) -> None:
    assert parse_url(text, PORTS) == target


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x", "https://ok.example.com/x"),
        ("x?y", "https://ok.example.com/folder/x?y"),
        ("?z", "https://ok.example.com/folder/page?z"),
        ("#z", "https://ok.example.com/folder/page?query"),
        ("../../x", "https://ok.example.com/x"),
        ("//b.com:8443/x", "https://b.com:8443/x"),
        ("hTTps://B.com/x#y", "https://b.com/x"),
        ("/x//y:z@w", "https://ok.example.com/x//y:z@w"),
        ("./a:b", "https://ok.example.com/folder/a:b"),
    ],
)
def test_a_location_is_joined_to_where_it_came_from(location: str, url: str) -> None:
    assert resolve_redirect(BASE, location.encode(), PORTS).url == url


def test_the_length_is_bounded_before_anything_is_read() -> None:
    start = "https://a.com/"
    assert verdict_on(start.ljust(2048, "a")) is None
    assert verdict_on(start.ljust(2049, "a")) is Verdict.TOO_LONG
    assert verdict_on(start + "\0" * 100_000) is Verdict.TOO_LONG


def test_the_first_broken_rule_is_told() -> None:
    assert verdict_on("http://u@127.0.0.1:0/\t") is Verdict.BAD_CHARACTER
    assert verdict_on("http://u@127.0.0.1:0/") is Verdict.NOT_HTTPS
    assert verdict_on("https://u@127.0.0.1:0/") is Verdict.USERINFO
    assert verdict_on("https://127.0.0.1:0/") is Verdict.BAD_PORT
    assert verdict_on("https://127.0.0.1:80/") is Verdict.ADDRESS_LITERAL
    assert verdict_on("https://a.local:80/") is Verdict.PRIVATE_NAME
    assert verdict_on("https://a.com:80/") is Verdict.FORBIDDEN_PORT
