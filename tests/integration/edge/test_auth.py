"""Who is let in, and how the others are told."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from edge.auth.credentials import mint_credential
from tests.integration.edge.parts import (
    MESSAGES,
    MODELS,
    Edge,
    FakeNode,
    is_following,
    make_key,
    running_edge,
    running_redis,
    until,
)
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


async def test_who_shows_much_that_nobody_has_is_heard_about_known_keys_alone(
    node: FakeNode, edge_redis_url: str
) -> None:
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    async with (
        running_edge(edge_redis_url, nodes, unknown_credentials_per_address=3, trusted_proxies=1) as edge,
        aiohttp.ClientSession(edge.url, headers={"X-Forwarded-For": "8.8.8.8"}) as client,
    ):
        _, known = await make_key(edge.store)
        _, other = await make_key(edge.store)
        for _ in range(8):  # what exists counts for nothing
            assert (await ask(client, ("x-api-key", known.token))).status == 200
            edge.cache.clear()
        assert (await ask(client, ("x-api-key", known.token))).status == 200
        for _ in range(3):
            await assert_unauthorized(await ask(client, ("x-api-key", mint_credential().token)))
        for key in (mint_credential(), other):
            response = await ask(client, ("x-api-key", key.token))
            await assert_refused(response, 429, "rate_limit_error", "rate_limited")
            assert 1 <= int(response.headers["Retry-After"]) <= 60
        assert (await ask(client, ("x-api-key", known.token))).status == 200
        elsewhere = ("X-Forwarded-For", "10.0.0.7")
        for _ in range(5):  # where many may stand behind one address
            await assert_unauthorized(await ask(client, elsewhere, ("x-api-key", mint_credential().token)))
        assert (await ask(client, elsewhere, ("x-api-key", other.token))).status == 200


async def test_a_revocation_is_seen_within_a_second(client: aiohttp.ClientSession, edge: Edge) -> None:
    record, credential = await make_key(edge.store)
    assert (await ask(client, ("x-api-key", credential.token))).status == 200

    async def is_refused() -> bool:
        return (await ask(client, ("x-api-key", credential.token))).status == 401

    await edge.store.revoke_key(record.id)
    await until(is_refused, 1)


async def test_a_key_asked_for_before_it_was_made_works_at_once(
    client: aiohttp.ClientSession, edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = mint_credential()
    await assert_unauthorized(await ask(client, ("x-api-key", credential.token)))
    monkeypatch.setattr("tests.integration.edge.parts.mint_credential", lambda: credential)
    await make_key(edge.store)

    async def is_accepted() -> bool:
        return (await ask(client, ("x-api-key", credential.token))).status == 200

    await until(is_accepted, 1)


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
        assert time.monotonic() - begun < 2
        await assert_refused(response, 503, "server_error", "node_unavailable")
        assert response.headers["Retry-After"] == "1"


async def test_a_frozen_redis_costs_about_a_second(tmp_path: Path, node: FakeNode) -> None:
    port = free_port()
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    async with (
        running_redis(tmp_path, port) as redis,
        running_edge(url_of("edge", port), nodes) as edge,
        aiohttp.ClientSession(edge.url) as client,
    ):
        redis.send_signal(19)  # SIGSTOP
        begun = time.monotonic()
        response = await ask(client, ("x-api-key", mint_credential().token))
        assert time.monotonic() - begun < 2.5
        await assert_refused(response, 503, "server_error", "node_unavailable")


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

            await until(is_dropped, 5)
            await until(lambda: is_following(edge.invalidations), 5)
