"""Requests of four kinds, asked for again and again, with the times at which each began and ended.

Decides what is asked and what a right answer is. Must not know what is done to the service meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.money.client import Call, Step, Tenant, ticks, words
from tests.e2e.money.service import Part
from tests.e2e.money.verdict import Account


@dataclass(frozen=True, slots=True)
class Kind:
    """What is asked.

    Attributes:
        script_s: how long the engine takes. loops: how many ask at a time, each `pause_s` after its last answer.
    """

    name: str
    script: Sequence[Step]
    stream: bool
    script_s: float
    loops: int
    pause_s: float = 0.05

    @property
    def text(self) -> str:
        """Of a whole answer."""
        return "".join(step[1] for step in self.script if step[0] == "text")


HELD_S, STREAM_S = 0.6, 3.0
"""Two deaths, a second apart, must not befall one request that is held: it is sent to another node once."""
SHORT = Kind("short", words(1), stream=False, script_s=0, loops=8)
HELD = Kind("held before its first byte", [["pause", HELD_S], *words(3)], False, HELD_S, 6)
HELD_STREAM = Kind("stream, held before its first byte", [["pause", HELD_S], *words(3)], True, HELD_S, 4)
STREAM = Kind("stream", ticks(STREAM_S), stream=True, script_s=STREAM_S, loops=8)
KINDS = (SHORT, HELD, HELD_STREAM, STREAM)


@dataclass(slots=True)
class Ask:
    """One request: times are of the monotonic clock."""

    kind: Kind
    loop: int
    call: Call
    sent_s: float
    done_s: float = 0.0

    @property
    def is_right(self) -> bool:
        """Answered to its end, with the very text of the script."""
        return self.call.is_whole and self.call.text == self.kind.text

    @property
    def took_s(self) -> float:
        """From sending to the last byte."""
        return self.done_s - self.sent_s

    @property
    def end(self) -> str:
        """How it ended, in words."""
        call = self.call
        if self.is_right:
            return "answered"
        if call.is_whole:
            return "answered otherwise than it should"
        if call.status == 200:
            return f"error event {call.code}" if call.code else "cut" if call.broke else "ended without a word"
        if call.status is None:
            return "refused connection" if call.is_refused else "no answer"
        return f"{call.status} {call.code}"


@dataclass(slots=True)
class Load:
    """All that was asked. `pick_edge` gives the edge of the next request; `is_resent` says that a client, as a
    balancer does, asks the next edge where a connection was refused."""

    tenant: Tenant
    pick_edge: Callable[[], Part]
    kinds: Sequence[Kind] = KINDS
    is_resent: bool = False
    asks: list[Ask] = field(default_factory=list)

    async def run(self, is_over: asyncio.Event) -> None:
        """Until it is over, and all have been answered."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self.kinds:
                for loop in range(kind.loops):
                    tasks.create_task(self._ask_on(kind, loop, is_over))

    async def _ask_on(self, kind: Kind, loop: int, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            ask = await self._begun(kind, loop)
            self.asks.append(ask)
            await ask.call.read()
            ask.call.leave()
            ask.done_s = time.monotonic()
            await asyncio.sleep(kind.pause_s)

    async def _begun(self, kind: Kind, loop: int) -> Ask:
        # Who routes by the beginning of a conversation gives each loop a node of its own.
        text = f"{kind.name} {loop}: {json.dumps({'scripted': kind.script})}"
        fields: Mapping[str, Any] = {"stream": kind.stream, "messages": [{"role": "user", "content": text}]}
        while True:
            ask = Ask(kind, loop, self.tenant.call(edge=self.pick_edge(), **fields), time.monotonic())
            await ask.call.begin()
            if not (self.is_resent and ask.call.is_refused):
                return ask
            await asyncio.sleep(0.01)

    def accounts(self) -> list[Account]:
        """For the verdict."""
        return [Account(ask.call) for ask in self.asks]


def render_rows(rows: Sequence[tuple[str, object]]) -> str:
    """A table of two columns."""
    return "\n".join(f"{name:56}{value:>12}" for name, value in rows)


def render_s(values: Sequence[float]) -> str:
    """Median and maximum."""
    return f"{statistics.median(values):.3f} {max(values):.3f}" if values else "-"
