"""A real model behind our node and behind vLLM's own server: time to the first token, and tokens per second.

Decides the load: so many streams at once, each with one request after the other, on both servers in turn.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import orjson
import psutil

from node.catalog.served import ServedModel
from tests.bench.node.servers import Server, both_servers

STREAMS = {1: 5, 8: 3, 32: 2}
"""Requests of each stream, by the number of streams."""
ROUNDS = 7
MAX_TOKENS = 200
_DELTA = b"content_block_delta"
_OUTPUT_TOKENS = re.compile(rb'"output_tokens":(\d+)')


@dataclass(slots=True)
class Load:
    """What one server did under so many streams, over all rounds.

    Attributes:
        first_ms: of each request. rates: tokens per second of each round, all streams together.
        cpu_s: of the process that speaks HTTP; the model runs in another.
    """

    first_ms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    tokens: int = 0
    cpu_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """The median round's, since others may use the machine in one."""
        return statistics.median(self.rates)

    @property
    def cpu_us_per_token(self) -> float:
        """All that serving costs beside the model, sockets and detokenizing included."""
        return self.cpu_s / self.tokens * 1e6

    @property
    def median_ms(self) -> float:
        """To the first token."""
        return statistics.median(self.first_ms)

    @property
    def p95_ms(self) -> float:
        """To the first token."""
        return statistics.quantiles(self.first_ms, n=20)[18]


ServedTable = dict[int, dict[str, Load]]
"""By the number of streams and the server's name."""


def measure_served(model: ServedModel, prompts: Sequence[str], rounds: int = ROUNDS) -> ServedTable:
    """Start both, ask both in turn, stop both."""
    with both_servers(model) as servers:
        return asyncio.run(_measure(servers, model.served_id, prompts, rounds))


async def _measure(servers: Sequence[Server], model: str, prompts: Sequence[str], rounds: int) -> ServedTable:
    table: ServedTable = {streams: {server.name: Load() for server in servers} for streams in STREAMS}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for server in servers:  # to warm up
            await _load(session, server, model, prompts, Load(), streams=max(STREAMS), each=1)
        for _ in range(rounds):
            for streams, each in STREAMS.items():
                for server in servers:
                    load = table[streams][server.name]
                    await _load(session, server, model, prompts, load, streams=streams, each=each)
    return table


async def _load(
    session: aiohttp.ClientSession,
    server: Server,
    model: str,
    prompts: Sequence[str],
    load: Load,
    *,
    streams: int,
    each: int,
) -> None:
    async def stream(number: int) -> None:
        for turn in range(each):
            await _ask(session, server, _body(model, prompts[(number + turn) % len(prompts)]), load)

    begun_s, begun_cpu_s, begun_tokens = time.perf_counter(), _cpu_s(server), load.tokens
    await asyncio.gather(*map(stream, range(streams)))
    load.rates.append((load.tokens - begun_tokens) / (time.perf_counter() - begun_s))
    load.cpu_s += _cpu_s(server) - begun_cpu_s


def _cpu_s(server: Server) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


def _body(model: str, prompt: str) -> bytes:
    return orjson.dumps(
        {
            "model": model,
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "stream": True,
            "thinking": {"type": "disabled"},
            "messages": [{"role": "user", "content": prompt}],
        }
    )


async def _ask(session: aiohttp.ClientSession, server: Server, body: bytes, load: Load) -> None:
    """One request. The client must be cheap: it shares the machine with both servers."""
    headers = {"Content-Type": "application/json", **server.headers()}
    begun_s = time.perf_counter()
    async with session.post(server.url, data=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        first_s, last = 0.0, b""
        async for chunk in response.content.iter_any():
            if not first_s and _DELTA in chunk:
                first_s = time.perf_counter()
            last = (last + chunk)[-1000:]
    load.first_ms.append((first_s - begun_s) * 1000)
    load.tokens += int(_OUTPUT_TOKENS.findall(last)[-1])
