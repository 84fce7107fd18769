"""`make bench`: what the edge adds, how fast a first token leaves, and what the edge weighs.

Direct to the node and through the edge in turn, request by request, so that both meet the same machine. The engine is
scripted: no model's time is in the figures.
"""

from __future__ import annotations

import asyncio
import json
import platform
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
import orjson
import psutil

from shared.ids import new_request_id
from tests.bench.dev_stack import Stack, scripted_stack

ROUNDS = 1000
WARM_UP = 100
PATH = "/v1/infer/v1/messages"


def body_of(script: list[object], *, stream: bool) -> bytes:
    """A small request that plays a script."""
    message = {"role": "user", "content": json.dumps({"scripted": script})}
    return orjson.dumps({"model": "b3os/scripted", "max_tokens": 100, "stream": stream, "messages": [message]})


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the node; credentials are made before the clock starts."""

    session: aiohttp.ClientSession
    base: str
    credential: Callable[[], str]

    async def post(self, body: bytes, credential: str) -> aiohttp.ClientResponse:
        """Send, and return once the head is here."""
        headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
        response = await self.session.post(self.base + PATH, data=body, headers=headers)
        assert response.status == 200, await response.text()
        return response


def ways_of(stack: Stack, session: aiohttp.ClientSession) -> dict[str, Way]:
    """Directly, with a token as the edge makes it, and through the edge."""
    facts = stack.facts
    return {
        "direct": Way(session, facts.node_url, lambda: stack.node_token(new_request_id(), "POST", PATH)),
        "through the edge": Way(session, facts.edge_url, lambda: facts.api_key),
    }


async def whole_ms(way: Way) -> float:
    """Milliseconds for a small answer of known size."""
    body, credential = body_of([["text", "Hello"]], stream=False), way.credential()
    begun = time.perf_counter()
    async with await way.post(body, credential) as response:
        await response.read()
    return (time.perf_counter() - begun) * 1000


async def first_token_ms(way: Way) -> float:
    """Milliseconds from the engine's giving of the first token to its arrival here, on one clock."""
    body = body_of([["pause", 0.002], ["now"]], stream=True)
    async with await way.post(body, way.credential()) as response:
        async for line in response.content:
            if line.startswith(b"data: ") and b"text_delta" in line:
                arrived = time.monotonic_ns()
                given = int(orjson.loads(line[6:])["delta"]["text"])
                await response.read()
                return (arrived - given) / 1e6
    raise AssertionError("no token came")


async def measure(stack: Stack, sample: Callable[[Way], Awaitable[float]]) -> dict[str, list[float]]:
    """Samples by way, taken in turn."""
    async with aiohttp.ClientSession() as session:
        ways = ways_of(stack, session)
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(WARM_UP + ROUNDS):
            for name, way in ways.items():
                value = await sample(way)
                if number >= WARM_UP:
                    samples[name].append(value)
    return samples


def edge_process(stack: Stack) -> psutil.Process:
    """The process that listens on the edge's port."""
    port = urlsplit(stack.facts.edge_url).port
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,) and connection.pid:
            return psutil.Process(connection.pid)
    raise SystemExit("nobody listens on the edge's port")


def show(title: str, samples: dict[str, list[float]], limit: str) -> None:
    """A table with the medians and what the edge adds to them."""
    print(f"\n{title} ({limit})")
    for name, values in samples.items():
        p99 = statistics.quantiles(values, n=100)[98]
        print(f"  {name:18} median {statistics.median(values):6.2f} ms   p99 {p99:6.2f} ms")
    direct, through = (statistics.median(values) for values in samples.values())
    print(f"  {'added':18} median {through - direct:6.2f} ms")


def main() -> None:
    """Run all of it and print."""
    print(f"{platform.platform()}, Python {platform.python_version()}, {psutil.cpu_count()} cores, {ROUNDS} rounds")
    with scripted_stack() as stack:
        small = asyncio.run(measure(stack, whole_ms))
        first = asyncio.run(measure(stack, first_token_ms))
        resident_mib = edge_process(stack).memory_info().rss / 2**20
    show("small request, answered whole", small, "the edge may add 2 ms to the median")
    show("first token, from the engine to the client", first, "5 ms directly from the node")
    print(f"\nedge process: {resident_mib:.1f} MiB resident (80 MiB allowed)")


if __name__ == "__main__":
    main()
