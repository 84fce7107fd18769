"""Headers pass by allow-list, both ways."""

from __future__ import annotations

from multidict import CIMultiDict, CIMultiDictProxy

from edge.forward import build_request_headers, build_response_headers, join_timing


def received(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_a_node_sees_the_allowed_headers_alone() -> None:
    headers = build_request_headers(
        received(
            ("AUTHORIZATION", "Bearer secret"),
            ("cookie", "a=b"),
            ("x-api-key", "secret"),
            ("x-b3os-csrf", "c"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("x-request-id", "mine"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("tracestate", "a=b"),
            ("baggage", "a=b"),
            ("content-type", "application/json"),
            ("Anthropic-Beta", "one"),
            ("anthropic-beta", "two"),
            ("anthropic-version", "2023-06-01"),
        )
    )
    assert sorted(headers.items()) == [
        ("Accept-Encoding", "identity"),
        ("Content-Type", "application/json"),
        ("anthropic-beta", "one"),
        ("anthropic-beta", "two"),
        ("anthropic-version", "2023-06-01"),
    ]


def test_a_client_sees_the_allowed_headers_alone() -> None:
    headers = build_response_headers(
        received(
            ("server", "node"),
            ("set-cookie", "a=b"),
            ("x-request-id", "node's"),
            ("location", "http://node"),
            ("retry-after", "3"),
            ("ratelimit-limit", "10"),
            ("x-b3os-ignored", "metadata"),
            ("content-type", "application/json"),
        )
    )
    assert sorted(headers) == ["Content-Type", "RateLimit-Limit", "Retry-After", "x-b3os-ignored"]


def test_timings_of_a_node_are_joined() -> None:
    assert join_timing(received(("server-timing", "parse;dur=1"), ("Server-Timing", "queue;dur=2"))) == (
        "parse;dur=1, queue;dur=2"
    )
    assert join_timing(received()) is None
