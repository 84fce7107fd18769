"""Which headers pass the edge, in either direction.

Decides by allow-list, so that neither a caller's secrets nor a caller's claims about itself reach a node, and nothing
of a node's own leaks out. Must not know how anything is sent.
"""

from __future__ import annotations

from multidict import CIMultiDict, CIMultiDictProxy

from shared.hop import FOR_CLIENTS

_TO_NODE = ("Content-Type", "Accept", "anthropic-version", "anthropic-beta")
# What aiohttp's client would add by itself: a node is to see what the caller sent, or that it is absent.
NOT_ADDED = ("User-Agent", "Content-Type", "Accept")


def build_request_headers(received: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """What the node gets beside its token: the allowed headers, every value of each."""
    headers = _pick(received, _TO_NODE)
    headers["Accept-Encoding"] = "identity"  # bytes pass unread, so they must not be compressed
    return headers


def build_response_headers(answered: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """What the client gets of the node's answer; ids, timing, length and framing are the edge's own."""
    return _pick(answered, FOR_CLIENTS)


def join_timing(answered: CIMultiDictProxy[str]) -> str | None:
    """The node's `Server-Timing`, as one value."""
    return ", ".join(answered.getall("Server-Timing", ())) or None


def _pick(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name in names for value in headers.getall(name, ()))
