"""Traces of requests, for who wants them: whether there are any, and where they go.

Decides nothing of a trace itself: shared/otel.py does, and is imported only where traces are asked for, so that
without them nothing of it costs time or memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import aiohttp
from aiohttp import web
from pydantic import Field

from shared.settings import Section, SettingsError


class TracingSection(Section):
    """`[tracing]`, the same for edge and node.

    Attributes:
        otlp_endpoint: where spans are sent as OTLP over HTTP, path included; none means no traces.
        sample_ratio: which part of the requests is traced.
        trusts_callers: whether an edge goes on with the traces of its callers, as a node does with its edge's.
    """

    otlp_endpoint: str | None = Field(None, pattern=r"^https?://[^/?#]+/")
    sample_ratio: float = Field(1, ge=0, le=1)
    trusts_callers: bool = False


class Tracing(Protocol):
    """Spans of one process."""

    def attach(self, app: web.Application) -> None:
        """Have each request of `app` leave a span."""

    def client_traces(self) -> Sequence[aiohttp.TraceConfig]:
        """For a client whose requests belong to the trace of the request that is being answered."""


class NoTracing:
    """Leaves no spans."""

    def attach(self, app: web.Application) -> None:
        """Nothing to do."""

    def client_traces(self) -> Sequence[aiohttp.TraceConfig]:
        """None."""
        return ()


@contextlib.asynccontextmanager
async def open_tracing(section: TracingSection, service: str, *, trusts_callers: bool) -> AsyncIterator[Tracing]:
    """Send spans while the body runs, and the last of them after it.

    Args:
        trusts_callers: whether a request belongs to its caller's trace, and the caller decides if it is kept; a
            stranger's must not.

    Raises:
        SettingsError: traces are asked for, and the packages for it are not installed.
    """
    if section.otlp_endpoint is None:
        yield NoTracing()
        return
    try:
        from shared.otel import open_otel
    except ImportError:
        raise SettingsError(
            "tracing.otlp_endpoint (B3OS_TRACING_OTLP_ENDPOINT): traces need more packages: pip install 'b3os[otel]'"
        ) from None
    opened = open_otel(service, section.otlp_endpoint, section.sample_ratio, trusts_callers=trusts_callers)
    async with opened as tracing:
        yield tracing
