"""The table "Names" of docs/wire.md."""

from __future__ import annotations

import re
import time
import zlib
from typing import Any

import click
import pytest
from redis.asyncio import Redis

from edge.auth.credentials import mint_credential
from edge.auth.key_record import KeyRecord
from edge.auth.key_store import RedisKeyStore
from edge.auth.scopes import SCOPES
from node.settings import NodeSection
from shared.cli.dev import dev
from shared.ids import REQUEST_ID
from tests.contract.people import Person
from tests.contract.service import Service

CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


def crc_in_base32(text: str) -> str:
    """Written once more, from the contract."""
    number = zlib.crc32(text.encode())
    digits = [number >> shift & 31 for shift in range(30, -1, -5)]
    return "".join(CROCKFORD[digit] for digit in digits)


def test_names_api_key_has_the_crc_of_all_before_its_last_underscore(service: Service) -> None:
    key = service.stack.api_key
    assert re.fullmatch(r"b3os_sk_[0-9a-hjkmnp-tv-z]{32}_[0-9a-hjkmnp-tv-z]{7}", key)
    head, _, check = key.rpartition("_")
    assert check == crc_in_base32(head)
    changed = head[:-1] + ("0" if head[-1] != "0" else "1")
    assert service.send(b"{}", key=f"{changed}_{check}").edge_refusal()[:2] == (401, "unauthorized")


async def test_names_cli_token_is_taken_like_a_key(service: Service) -> None:
    token = mint_credential("pat")
    assert re.fullmatch(r"b3os_pat_[0-9a-hjkmnp-tv-z]{32}_[0-9a-hjkmnp-tv-z]{7}", token.token)
    record = KeyRecord(
        id="tok_1",
        kind="pat",
        org="dev",
        project="default",
        name="test",
        scopes=SCOPES,
        status="active",
        hint=token.hint,
        created_at_s=int(time.time()),
        expires_at_s=None,
    )
    async with Redis.from_url(service.stack.redis_url, decode_responses=True) as redis:
        await RedisKeyStore(redis).create_key(token.digest, record)
    assert service.send(b"{}", key=token.token).refusal()[:2] == (400, "invalid_request")


def test_names_session_cookie_is_host_only_and_out_of_reach_of_scripts(person: Person) -> None:
    answer = person.send("POST", "/v1/auth/organization", {"organization": "dev"})
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert re.fullmatch(r"__Host-b3os_session=[A-Za-z0-9_-]{43}", name)
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=Lax"} <= set(attributes)
    assert not [attribute for attribute in attributes if attribute.startswith("Domain")]


def test_names_request_id_is_a_ulid_that_sorts_by_time(service: Service) -> None:
    ids = []
    for _ in range(3):
        ids.append(service.ask().headers["request-id"])
        time.sleep(0.002)
    assert all(REQUEST_ID.fullmatch(name) for name in ids)
    assert ids == sorted(ids)
    milliseconds = 0
    for character in ids[0][4:14]:
        milliseconds = milliseconds << 5 | CROCKFORD.index(character)
    assert abs(milliseconds / 1000 - time.time()) < 60


@pytest.mark.parametrize("stream", [False, True])
def test_names_message_id_has_32_hex_characters_and_never_comes_twice(service: Service, stream: bool) -> None:
    def ask() -> str:
        answer = service.ask(stream=stream)
        message: dict[str, Any] = answer.events[0]["message"] if stream else answer.message
        return str(message["id"])

    ids = {ask() for _ in range(20)}
    assert len(ids) == 20
    assert all(re.fullmatch(r"msg_[0-9a-f]{32}", name) for name in ids)


def test_names_tool_call_id_is_the_runtime_s_and_never_comes_twice(service: Service) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    answers = [service.ask([["tool", "f", {}], ["tool", "f", {}]], tools=tools).message for _ in range(5)]
    ids = [block["id"] for answer in answers for block in answer["content"]]
    assert len(set(ids)) == 10
    assert all(re.fullmatch(r"chatcmpl-tool-[0-9a-f]+", name) for name in ids)


def test_names_model_id_begins_with_b3os_and_may_come_escaped(service: Service) -> None:
    listed = service.send(None, "/v1/infer/models", "GET").message["data"][0]["id"]
    assert listed == service.stack.model == service.ask().message["model"]
    assert listed.startswith("b3os/")
    escaped = service.send(None, f"/v1/infer/v1/models/{listed.replace('/', '%2F')}", "GET")
    assert escaped.message["id"] == listed


def test_names_development_base_url_is_7700_and_the_node_s_port_7710(service: Service) -> None:
    defaults = {option.name: option.default for option in dev.params if isinstance(option, click.Option)}
    assert (defaults["edge_port"], defaults["node_port"]) == (7700, 7710)
    assert NodeSection.model_fields["port"].get_default() == 7710
    assert service.stack.base_url == f"{service.stack.edge_url}/v1/infer"
