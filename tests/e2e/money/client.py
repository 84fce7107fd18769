"""Who asks the service: an organization with one key, and its calls.

Decides what a caller knows of a call of his: that is what the books are compared with.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from edge.auth.accounts import RedisAccounts
from edge.auth.credentials import mint_credential
from edge.auth.key_record import KeyRecord, SpendCap
from edge.auth.key_store import RedisKeyStore
from edge.auth.scopes import SCOPES
from shared.ids import new_record_id
from tests.e2e.money.service import Part, Service
from tests.e2e.unheard import AGAIN_AFTER_S, TIMES, is_unheard

MESSAGES = "/v1/infer/v1/messages"
Step = list[Any]
LONG_S = 600
"""A pause that no test waits for."""
TRIES = 120


def words(count: int) -> list[Step]:
    """A token each."""
    return [["text", f"w{number} "] for number in range(count)]


def ticks(seconds: float, every_s: float = 0.2) -> list[Step]:
    """Words at a pace."""
    return [step for word in words(round(seconds / every_s)) for step in (word, ["pause", every_s])]


def endless(count: int) -> list[Step]:
    """So many words, and then nothing any more."""
    return [*words(count), ["pause", LONG_S]]


@dataclass(slots=True)
class Tenant:
    """An organization that no other test has."""

    service: Service
    org: str
    key_id: str
    token: str

    @classmethod
    async def made(cls, service: Service, *, cap_nano_usd: int | None = None, **limits: int) -> Tenant:
        """With the limits of an operator's, and a cap for all times."""
        org, credential = f"t{secrets.token_hex(5)}", mint_credential()
        cap = None if cap_nano_usd is None else SpendCap(cap_nano_usd, "total")
        facts = ("sk", org, "main", "test", SCOPES, "active", credential.hint, 1, None)
        record = KeyRecord(new_record_id("key"), *facts, spend_cap=cap)
        await RedisKeyStore(service.edge_redis).create_key(credential.digest, record, create_missing=True)
        if limits:
            await RedisAccounts(service.edge_redis).set_limits(org, dict(limits))
        return cls(service, org, record.id, credential.token)

    def call(self, script: list[Step] | None = None, *, edge: Part | None = None, **fields: Any) -> Call:
        """A call that is not begun yet; through the first edge where none is named."""
        text = json.dumps({"scripted": words(3) if script is None else script})
        body = {
            "model": self.service.model,
            "max_tokens": 1000,
            "stream": True,
            "messages": [{"role": "user", "content": text}],
            **fields,
        }
        return Call(self, edge or self.service.edges[0], body)

    async def ask(self, script: list[Step] | None = None, *, edge: Part | None = None, **fields: Any) -> Call:
        """A call to its end. Where no limit could be checked, it is made again: so an SDK does, on a busy machine."""
        for _ in range(TRIES):
            call = self.call(script, edge=edge, **fields)
            await call.begin()
            await call.read()
            if call.status not in (None, 503):
                return call
            await asyncio.sleep(0.5)
        raise AssertionError("it was never let in or refused")

    async def opened(self, script: list[Step], *, edge: Part | None = None, **fields: Any) -> Call:
        """A stream that has begun."""
        for _ in range(TRIES):
            call = self.call(script, edge=edge, **fields)
            await call.begin()
            if call.status == 200:
                return call
            await asyncio.sleep(0.5)
        raise AssertionError("no stream ever began")

    async def get(self, path: str, edge: Part | None = None) -> dict[str, Any]:
        """What an edge tells of this organization."""
        headers = {"Authorization": f"Bearer {self.token}"}
        for _ in range(TRIES):
            async with self.service.http.get((edge or self.service.edges[0]).url + path, headers=headers) as answer:
                if answer.status == 200:
                    told: dict[str, Any] = await answer.json()
                    return told
            await asyncio.sleep(0.5)
        raise AssertionError(f"{path} was never shown")


class Call:
    """One request, read as far as a test wants.

    Attributes:
        status: of the answer; None where there was none. request_id: empty there.
        code: of a refusal, or of the event that ended a stream. is_unheard: whether Redis had no second for it.
        words: that came. usage: as the end of the answer tells it.
        node: that answered, as the end of the answer tells it.
        is_whole: whether the answer reached its end. broke: whether its connection did. is_refused: whether there
            was none, since nobody listened.
    """

    def __init__(self, tenant: Tenant, edge: Part, body: Mapping[str, Any]) -> None:
        self.tenant, self.edge, self.body = tenant, edge, body
        self._response: aiohttp.ClientResponse | None = None
        self.status: int | None = None
        self.request_id = ""
        self.code: str | None = None
        self.is_unheard = False
        self.text = ""
        self.usage: dict[str, int] = {}
        self.stop_reason: str | None = None
        self.node: str | None = None
        self.is_whole = self.broke = self.is_refused = False
        self.headers: Mapping[str, str] = {}

    @property
    def words(self) -> int:
        return len(self.text.split())

    @property
    def output_tokens(self) -> int:
        return self.usage["output_tokens"]

    async def begin(self) -> None:
        """Send, and wait for the head."""
        headers = {"Authorization": f"Bearer {self.tenant.token}"}
        try:
            self._response = await self.tenant.service.http.post(
                self.edge.url + MESSAGES, json=self.body, headers=headers, timeout=aiohttp.ClientTimeout(None)
            )
        except (aiohttp.ClientError, OSError) as error:
            self.broke, self.is_refused = True, isinstance(error, aiohttp.ClientConnectorError)
            return
        self.status, self.headers = self._response.status, self._response.headers
        self.request_id = self.headers["request-id"]

    async def read(self, words: int | None = None) -> None:
        """Until so many words came, or to the end."""
        if self._response is None:
            return
        try:
            if self._response.content_type != "text/event-stream":
                self.is_unheard = is_unheard(self._response.status, await self._response.read())
                self._see_whole(await self._response.json())
                return
            while words is None or self.words < words:
                line = await self._response.content.readline()
                if not line:
                    return
                if line.startswith(b"data: "):
                    self._see(json.loads(line[6:]))
        except (aiohttp.ClientError, OSError):
            self.broke = True

    async def run(self) -> Call:
        """To its end. It is made again where Redis had no second for it: so an SDK does, on a busy machine."""
        await self._begin_and_read()
        for _ in range(TIMES):
            if not self.is_unheard:
                break
            await asyncio.sleep(AGAIN_AFTER_S)
            self.code, self.is_unheard = None, False
            await self._begin_and_read()
        return self

    async def _begin_and_read(self) -> None:
        await self.begin()
        await self.read()

    def leave(self) -> None:
        """Close the connection, whatever is under way."""
        if self._response is not None:
            self._response.close()

    def _see_whole(self, body: dict[str, Any]) -> None:
        if self.status == 200:
            self.text = "".join(block.get("text", "") for block in body["content"])
            self.usage, self.stop_reason, self.is_whole = body["usage"], body["stop_reason"], True
            self.node = body["b3os"]["node"]
        else:
            self.code = body["b3os"]["code"] if "b3os" in body else body["error"]["code"]

    def _see(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "content_block_delta":
                self.text += event["delta"].get("text", "")
            case "message_delta":
                self.usage, self.stop_reason = event["usage"], event["delta"]["stop_reason"]
                self.node = event["b3os"]["node"]
            case "message_stop":
                self.is_whole = True
            case "error":
                self.code = event["b3os"]["code"]
            case _:
                pass  # starts and stops of blocks, and pings
