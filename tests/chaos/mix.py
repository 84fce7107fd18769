"""A mix of requests as a day brings them: read whole, streamed, left, with an image, counted only, and refused.

Decides what is asked how often, and which end of each is right. Must not know at what rate.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from PIL import Image

from tests.e2e.money.client import MESSAGES, Step, Tenant, endless, ticks, words
from tests.e2e.money.service import Service

_OUTPUT = re.compile(rb'"output_tokens":(\d+)')
_LEFT_AFTER_BYTES = 400


def _png() -> str:
    """A small one, as a client sends it."""
    stored = io.BytesIO()
    Image.new("RGB", (64, 64), "teal").save(stored, "PNG")
    return base64.b64encode(stored.getvalue()).decode()


_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _png()}}


@dataclass(frozen=True, slots=True)
class Sort:
    """Of request.

    Attributes:
        weight: how many of a hundred are such. statuses: what is right.
        is_left: whether the client leaves in the middle. is_paced: whether the engine takes its time.
    """

    name: str
    weight: int
    script: Sequence[Step]
    statuses: frozenset[int] = frozenset({200})
    stream: bool = False
    is_left: bool = False
    is_paced: bool = False


SORTS = (
    Sort("stream", 30, words(20), stream=True),
    Sort("stream at a pace", 8, ticks(2, 0.1), stream=True, is_paced=True),
    Sort("whole", 28, words(10)),
    Sort("count", 10, ()),
    Sort("left", 8, endless(20), stream=True, is_left=True),
    Sort("image", 8, words(3)),
    Sort("400", 3, (), frozenset({400})),
    Sort("401", 2, (), frozenset({401})),
    Sort("429", 3, words(3), frozenset({200, 429})),
)


@dataclass(slots=True)
class Mix:
    """Asks, and keeps count.

    Attributes:
        steady: whose answers are all read to their end. leaving: whose aren't. limited: who may ask once a minute.
        told_tokens: of the answer, as `steady` was told. ends: by sort and end.
    """

    service: Service
    http: aiohttp.ClientSession
    steady: Tenant
    leaving: Tenant
    limited: Tenant
    told_tokens: int = 0
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    _turns: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    async def made(cls, service: Service, http: aiohttp.ClientSession) -> Mix:
        """With organizations of its own."""
        limited = await Tenant.made(service, requests_per_minute=1)
        return cls(service, http, await Tenant.made(service), await Tenant.made(service), limited)

    def tenants(self) -> tuple[Tenant, ...]:
        """All of them."""
        return self.steady, self.leaving, self.limited

    @property
    def wrong(self) -> dict[tuple[str, str], int]:
        """Ends that are not right."""
        return {key: count for key, count in self.ends.items() if key[1] != "right"}

    async def ask(self, sort: Sort) -> None:
        """One of this sort, to its end."""
        try:
            end = await self._ask(sort)
        except (aiohttp.ClientError, OSError) as error:
            end = type(error).__name__
        self.ends[sort.name, end] += 1

    async def _ask(self, sort: Sort) -> str:
        tenant = self.leaving if sort.is_left else self.limited if sort.name == "429" else self.steady
        token = (
            tenant.token if sort.name != "401" else f"{tenant.token[:-1]}{'0' if tenant.token[-1] != '0' else '1'}"
        )
        edge = self.service.edges[next(self._turns) % len(self.service.edges)]
        path = f"{MESSAGES}/count_tokens" if sort.name == "count" else MESSAGES
        headers = {"Authorization": f"Bearer {token}"}
        async with self.http.post(edge.url + path, json=self._body(sort), headers=headers) as answer:
            if sort.is_left and answer.status == 200:
                await answer.content.readexactly(_LEFT_AFTER_BYTES)
                answer.close()
                return "right"
            body = await answer.read()
        if answer.status not in sort.statuses:
            return f"{answer.status} {body[:200].decode(errors='replace')}"
        if answer.status != 200 or sort.name == "count":
            return "right"
        if sort.stream and b"message_stop" not in body:
            return body[-200:].decode(errors="replace")
        if tenant is self.steady:
            self.told_tokens += int(_OUTPUT.findall(body)[-1])
        return "right"

    def _body(self, sort: Sort) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": json.dumps({"scripted": sort.script})}]
        if sort.name == "image":
            content.append(_IMAGE)
        body: dict[str, Any] = {"model": self.service.model, "messages": [{"role": "user", "content": content}]}
        if sort.name == "count":
            return body
        body |= {"max_tokens": 100, "stream": sort.stream}
        return body | {"max_token": 100} if sort.name == "400" else body


def choose(rng: random.Random, sorts: Sequence[Sort] = SORTS) -> Sort:
    """By weight."""
    return rng.choices(sorts, [sort.weight for sort in sorts])[0]
