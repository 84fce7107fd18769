"""Who is let in, and how the others are told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from edge.api.device import GRANT
from edge.auth.authenticate import STRANGERS_AT_ONCE
from edge.auth.credentials import mint_credential, parse_credential
from edge.auth.key_record import KeyRecord
from edge.auth.store import StoreUnavailable
from edge.identity import LOOKUP_CONNECTIONS
from tests.integration.edge.parts import (
    MESSAGES,
    MODELS,
    WELL_WITHIN_S,
    Edge,
    FakeNode,
    is_following,
    make_key,
    running_edge,
    running_redis,
    until,
)
from tests.integration.edge.people import KEYS, SESSION, Page, make_user
from tests.redis_server import free_port, url_of


async def ask(
    client: aiohttp.ClientSession, *headers: tuple[str, str], path: str = MESSAGES
) -> aiohttp.ClientResponse:
    response = await (
        client.get(path, headers=headers) if path == MODELS else client.post(path, headers=headers, json={})
    )
    await response.read()
    return response


async def assert_refused(response: aiohttp.ClientResponse, status: int, kind: str, code: str) -> dict[str, Any]:
    assert response.status == status
    assert response.headers["x-request-id"] == response.headers["request-id"]
    assert response.headers["Server-Timing"].startswith("edge_auth;dur=")
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["type"], body["error"]["code"], body["error"]["param"]) == (kind, code, None)
    error: dict[str, Any] = body["error"]
    return error


async def assert_unauthorized(response: aiohttp.ClientResponse) -> str:
    error = await assert_refused(response, 401, "authentication_error", "unauthorized")
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["WWW-Authenticate"] == "Bearer"
    return str(error["message"])


async def test_a_good_key_reaches_the_node_as_its_organization(
    client: aiohttp.ClientSession, node: FakeNode, edge: Edge
) -> None:
    record, credential = await make_key(edge.store)
    response = await ask(client, ("Authorization", f"bearer {credential.token}"))
    assert response.status == 200
    [token] = node.tokens
    assert (token.caller.org, token.caller.project, token.caller.actor_id) == ("acme", "main", record.id)
    assert token.request_id == response.headers["x-request-id"]


async def test_x_api_key_and_any_version_and_query_pass(client: aiohttp.ClientSession, key: str) -> None:
    headers = (("x-api-key", key), ("anthropic-version", "1999-01-01"), ("anthropic-beta", "anything"))
    assert (await ask(client, *headers, path=f"{MESSAGES}?beta=true")).status == 200


async def test_no_credential(client: aiohttp.ClientSession) -> None:
    await assert_unauthorized(await ask(client))


async def test_two_authorization_headers(client: aiohttp.ClientSession, key: str) -> None:
    headers = (("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {key}"))
    await assert_unauthorized(await ask(client, *headers))


async def test_two_different_credentials(client: aiohttp.ClientSession, key: str) -> None:
    other = mint_credential().token
    await assert_unauthorized(await ask(client, ("Authorization", f"Bearer {key}"), ("x-api-key", other)))


async def test_a_wrong_checksum_says_so(client: aiohttp.ClientSession, key: str) -> None:
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    assert "checksum" in await assert_unauthorized(await ask(client, ("x-api-key", wrong)))


async def test_unknown_revoked_expired_and_suspended_share_one_text(
    client: aiohttp.ClientSession, edge: Edge
) -> None:
    revoked, revoked_key = await make_key(edge.store)
    await edge.store.revoke_key(revoked.id)
    _, expired_key = await make_key(edge.store, expires_at_s=2)
    _, suspended_key = await make_key(edge.store, org="suspended")
    await edge.store.set_organization_status("suspended", "suspended")
    keys = (mint_credential(), revoked_key, expired_key, suspended_key)
    texts = {await assert_unauthorized(await ask(client, ("x-api-key", each.token))) for each in keys}
    assert texts == {"the API key is not valid"}


@pytest.mark.parametrize(("scope", "path"), [("infer:run", MESSAGES), ("models:read", MODELS)])
async def test_a_missing_scope_is_named(client: aiohttp.ClientSession, edge: Edge, scope: str, path: str) -> None:
    other = "models:read" if scope == "infer:run" else "infer:run"
    _, credential = await make_key(edge.store, scopes=(other,))
    response = await ask(client, ("x-api-key", credential.token), path=path)
    error = await assert_refused(response, 403, "permission_error", "forbidden")
    assert scope in error["message"]
    assert response.headers["x-should-retry"] == "false"


@contextlib.asynccontextmanager
async def strange(redis_url: str, node: FakeNode, most: int = 3) -> AsyncIterator[tuple[Edge, aiohttp.ClientSession]]:
    """An edge that hears no more than `most` strangers of an address, and a client at one where there may be more."""
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    async with (
        running_edge(redis_url, nodes, unknown_credentials_per_address=most, trusted_proxies=1) as edge,
        aiohttp.ClientSession(edge.url, headers={"X-Forwarded-For": "8.8.8.8"}) as client,
    ):
        yield edge, client


async def test_who_shows_much_that_nobody_has_is_heard_about_keys_that_were_seen_before(
    node: FakeNode, edge_redis_url: str
) -> None:
    async with strange(edge_redis_url, node) as (edge, client):
        _, known = await make_key(edge.store)
        _, other = await make_key(edge.store)
        for _ in range(8):  # what exists counts for nothing
            assert (await ask(client, ("x-api-key", known.token))).status == 200
            edge.cache.clear()
        for _ in range(3):
            await assert_unauthorized(await ask(client, ("x-api-key", mint_credential().token)))
        for key in (mint_credential(), other):
            response = await ask(client, ("x-api-key", key.token))
            await assert_refused(response, 429, "rate_limit_error", "rate_limited")
            assert 1 <= int(response.headers["Retry-After"]) <= 60
        edge.cache.clear()
        assert (await ask(client, ("x-api-key", known.token))).status == 200
        elsewhere = ("X-Forwarded-For", "10.0.0.7")
        for _ in range(5):  # where many may stand behind one address
            await assert_unauthorized(await ask(client, elsewhere, ("x-api-key", mint_credential().token)))
        assert (await ask(client, elsewhere, ("x-api-key", other.token))).status == 200
        assert (await ask(client, ("x-api-key", other.token))).status == 200


async def test_strangers_at_once_pass_the_limit_no_more_than_one_by_one(node: FakeNode, edge_redis_url: str) -> None:
    async with strange(edge_redis_url, node) as (edge, client):
        reads = edge.cache.reads
        keys = [mint_credential().token for _ in range(20)]
        statuses = [each.status for each in await asyncio.gather(*(ask(client, ("x-api-key", key)) for key in keys))]
        assert sorted(statuses) == [401] * 3 + [429] * 17
        assert edge.cache.reads - reads == 3


async def test_one_key_that_nobody_has_counts_as_often_as_it_is_looked_up(
    node: FakeNode, edge_redis_url: str
) -> None:
    async with strange(edge_redis_url, node, 50) as (edge, client):
        reads, dead = edge.cache.reads, mint_credential().token
        for _ in range(3):
            answers = await asyncio.gather(*(ask(client, ("x-api-key", dead)) for _ in range(30)))
            assert {each.status for each in answers} == {401}
        looked_up = edge.cache.reads - reads
        assert looked_up < 50
        left = [(await ask(client, ("x-api-key", mint_credential().token))).status for _ in range(51 - looked_up)]
        assert left == [401] * (50 - looked_up) + [429]


async def test_a_store_that_does_not_answer_makes_nobody_a_stranger(
    node: FakeNode, edge_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with strange(edge_redis_url, node) as (edge, client):

        async def fail(_: str) -> None:
            raise StoreUnavailable("down")

        with monkeypatch.context() as away:
            away.setattr(edge.cache, "_load", fail)
            for _ in range(5):
                assert (await ask(client, ("x-api-key", mint_credential().token))).status == 503
        edge.cache._ask_again_s = None
        await assert_unauthorized(await ask(client, ("x-api-key", mint_credential().token)))


async def test_a_crowd_of_strangers_leaves_connections_for_who_was_seen_before(
    client: aiohttp.ClientSession, edge: Edge, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await ask(client, ("x-api-key", key))).status == 200
    edge.cache.clear()
    load, known = edge.cache._load, parse_credential(key).digest
    running, goes_on, at_once = asyncio.Semaphore(0), asyncio.Event(), Counter[str]()

    async def wait(digest: str) -> KeyRecord | None:
        if digest == known:
            return await load(digest)
        at_once["now"] += 1
        at_once["most"] = max(at_once.values())
        running.release()
        await goes_on.wait()
        at_once["now"] -= 1
        return None

    monkeypatch.setattr(edge.cache, "_load", wait)
    async with asyncio.TaskGroup() as group:
        crowd = [
            group.create_task(ask(client, ("x-api-key", mint_credential().token)))
            for _ in range(3 * STRANGERS_AT_ONCE)
        ]
        for _ in range(STRANGERS_AT_ONCE):
            await running.acquire()
        assert (await ask(client, ("x-api-key", key))).status == 200
        goes_on.set()
    assert {each.result().status for each in crowd} == {401}
    assert at_once["most"] == STRANGERS_AT_ONCE < LOOKUP_CONNECTIONS


async def test_whoever_gets_a_key_or_a_session_among_strangers_is_none(node: FakeNode, edge_redis_url: str) -> None:
    async with strange(edge_redis_url, node) as (edge, client):
        user = await make_user(edge, ("acme", "owner"))
        page = Page(client)
        for _ in range(3):
            await assert_unauthorized(await ask(client, ("x-api-key", mint_credential().token)))
        await page.log_in(user)
        assert (await page.get(SESSION)).status == 200
        made = await page.post(KEYS, {"name": "n", "project": "main"})
        assert (await ask(client, ("x-api-key", made.body["key"]))).status == 200
        codes = (await page.post("/v1/auth/device/code", {})).body
        decision = {"user_code": codes["user_code"], "decision": "approve"}
        assert (await page.post("/v1/auth/device/decision", decision)).status == 204
        poll = {"grant_type": GRANT, "device_code": codes["device_code"]}
        token = (await page.post("/v1/auth/device/token", poll)).body["access_token"]
        assert (await ask(client, ("x-api-key", token))).status == 200
        assert (await ask(client, ("x-api-key", mint_credential().token))).status == 429


@pytest.mark.usefixtures("remembered_for_ever")
async def test_a_revocation_is_seen_though_the_key_is_remembered(client: aiohttp.ClientSession, edge: Edge) -> None:
    record, credential = await make_key(edge.store)
    assert (await ask(client, ("x-api-key", credential.token))).status == 200

    async def is_refused() -> bool:
        return (await ask(client, ("x-api-key", credential.token))).status == 401

    await edge.store.revoke_key(record.id)
    await until(is_refused, WELL_WITHIN_S)


@pytest.mark.usefixtures("remembered_for_ever")
async def test_a_key_asked_for_before_it_was_made_works_at_once(
    client: aiohttp.ClientSession, edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = mint_credential()
    await assert_unauthorized(await ask(client, ("x-api-key", credential.token)))
    monkeypatch.setattr("tests.integration.edge.parts.mint_credential", lambda: credential)
    await make_key(edge.store)

    async def is_accepted() -> bool:
        return (await ask(client, ("x-api-key", credential.token))).status == 200

    await until(is_accepted, WELL_WITHIN_S)


async def test_without_redis_cached_keys_pass_and_others_are_503_at_once(tmp_path: Path, node: FakeNode) -> None:
    port = free_port()
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    async with (
        running_redis(tmp_path, port) as redis,
        running_edge(url_of("edge", port), nodes) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        _, cached = await make_key(edge.store)
        _, uncached = await make_key(edge.store)
        assert (await ask(client, ("x-api-key", cached.token))).status == 200
        redis.kill()
        await redis.wait()
        assert (await ask(client, ("x-api-key", cached.token))).status == 200
        begun = time.monotonic()
        response = await ask(client, ("x-api-key", uncached.token))
        least_s = time.monotonic() - begun
        for _ in range(4):  # of which one at least meets no machine that stands still
            edge.cache._ask_again_s = None
            begun = time.monotonic()
            await ask(client, ("x-api-key", uncached.token))
            least_s = min(least_s, time.monotonic() - begun)
        assert least_s < 2
        await assert_refused(response, 503, "server_error", "node_unavailable")
        assert response.headers["Retry-After"] == "1"


@pytest.mark.usefixtures("redis_is_given_up")
async def test_a_frozen_redis_costs_about_a_second(tmp_path: Path, node: FakeNode) -> None:
    port = free_port()
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    async with (
        running_redis(tmp_path, port) as redis,
        running_edge(url_of("edge", port), nodes) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        redis.send_signal(19)  # SIGSTOP
        took_s = []
        for _ in range(3):  # of which one at least meets no machine that stands still
            edge.cache._ask_again_s = None
            begun = time.monotonic()
            response = await ask(client, ("x-api-key", mint_credential().token))
            took_s.append(time.monotonic() - begun)
            await assert_refused(response, 503, "server_error", "node_unavailable")
        assert min(took_s) < 2.5


async def test_after_a_reconnect_the_whole_cache_is_gone(tmp_path: Path, node: FakeNode) -> None:
    port = free_port()
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    async with running_redis(tmp_path, port) as redis, running_edge(url_of("edge", port), nodes) as edge:
        _, cached = await make_key(edge.store)
        await asyncio.sleep(0.1)  # the invalidation of its creation
        await edge.cache.get(cached.digest)
        assert len(edge.cache) == 1
        redis.kill()
        await redis.wait()
        async with running_redis(tmp_path, port):

            async def is_dropped() -> bool:
                return len(edge.cache) == 0

            await until(is_dropped, WELL_WITHIN_S)
            await until(lambda: is_following(edge.invalidations), WELL_WITHIN_S)
