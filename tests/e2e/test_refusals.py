"""What the whole service refuses: status, shape, code, param and headers, through the edge."""

from __future__ import annotations

import asyncio
import io
import json
import os
from typing import Any

import aiohttp
import pytest

from edge.auth.credentials import mint_credential
from tests.e2e.stack import DevStack
from tests.e2e.unheard import heard_later, run_b3os, says_unheard

LOOKS = 20
"""Within a second, and an edge that stands still may answer a request before it reads what it was told earlier. One
that was told nothing believes in a key for ten."""
BODY = {"model": "b3os/scripted", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}


def b3os(stack: DevStack, *words: str) -> str:
    """Run the command line against the stack's Redis."""
    return run_b3os(*words, environment={**os.environ, "B3OS_REDIS_URL": stack.redis_url})


def new_key(stack: DevStack, *words: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        b3os(stack, "admin", "keys", "create", "--org=dev", "--project=default", "--name=test", "--json", *words)
    )
    return made


async def post(
    stack: DevStack, body: bytes, headers: list[tuple[str, str]], *, with_type: bool = True
) -> tuple[int, dict[str, Any], aiohttp.ClientResponse]:
    url = f"{stack.base_url}/v1/messages"
    chosen = [*headers, ("Content-Type", "application/json")] if with_type else headers
    async with (
        aiohttp.ClientSession() as session,
        await heard_later(lambda: session.post(url, data=io.BytesIO(body), headers=chosen), says_unheard) as response,
    ):
        assert response.headers["x-request-id"] == response.headers["request-id"]
        names = [entry.partition(";")[0] for entry in response.headers["Server-Timing"].split(", ")]
        assert names[0] == "edge_auth"
        assert names[-1] == "total"
        return response.status, await response.json(), response


def bearer(key: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}")]


def is_openai(body: dict[str, Any], code: str, kind: str) -> bool:
    error = body["error"]
    return set(body) == {"error"} and (error["code"], error["type"], error["param"]) == (code, kind, None)


def is_anthropic(body: dict[str, Any], code: str, kind: str, param: str | None = None) -> bool:
    extension = {"code": code} if param is None else {"code": code, "param": param}
    return (body["type"], body["error"]["type"], body["b3os"]) == ("error", kind, extension)


def wrong_checksum(key: str) -> str:
    return key[:-1] + ("0" if key[-1] != "0" else "1")


async def test_every_bad_credential_is_a_401_that_is_not_retried(dev_scripted: DevStack) -> None:
    stack, raw = dev_scripted, json.dumps(BODY).encode()
    key = stack.api_key
    cases: dict[str, list[tuple[str, str]]] = {
        "no credential": [],
        "wrong checksum": bearer(wrong_checksum(key)),
        "malformed": bearer("sk-ant-123"),
        "unknown": bearer(mint_credential().token),
        "two headers": [*bearer(key), *bearer(key)],
        "two different": [*bearer(key), ("x-api-key", mint_credential().token)],
        "basic": [("Authorization", "Basic abc")],
    }
    texts = {}
    for name, headers in cases.items():
        status, body, response = await post(stack, raw, headers)
        assert (name, status) == (name, 401)
        assert is_openai(body, "unauthorized", "authentication_error"), name
        assert response.headers["x-should-retry"] == "false"
        texts[name] = body["error"]["message"]
    assert "checksum" in texts["wrong checksum"]
    assert not [name for name, text in texts.items() if key in text]


async def test_a_revoked_key_is_dead_within_a_second(dev_scripted: DevStack) -> None:
    stack, raw = dev_scripted, json.dumps(BODY).encode()
    made = new_key(stack)
    assert (await post(stack, raw, bearer(made["key"])))[0] == 200
    b3os(stack, "admin", "keys", "revoke", made["id"])
    status, body, _ = await post(stack, raw, bearer(made["key"]))
    for _ in range(LOOKS):
        if status == 401:
            break
        await asyncio.sleep(1 / LOOKS)
        status, body, _ = await post(stack, raw, bearer(made["key"]))
    assert status == 401
    unknown = await post(stack, raw, bearer(mint_credential().token))
    assert body == unknown[1]  # nobody learns that the key once worked


async def test_a_key_without_the_scope_is_a_403(dev_scripted: DevStack) -> None:
    made = new_key(dev_scripted, "--scope=models:read")
    status, body, response = await post(dev_scripted, json.dumps(BODY).encode(), bearer(made["key"]))
    assert status == 403
    assert is_openai(body, "forbidden", "permission_error")
    assert "infer:run" in body["error"]["message"]
    assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("header", ["Authorization", "x-api-key"])
async def test_either_header_is_taken(dev_scripted: DevStack, header: str) -> None:
    value = dev_scripted.api_key if header == "x-api-key" else f"bEaReR {dev_scripted.api_key}"
    status, body, _ = await post(dev_scripted, json.dumps(BODY).encode(), [(header, value)])
    assert (status, body["type"]) == (200, "message")


async def test_twelve_mebibytes_are_the_model_s_refusal_and_forty_the_edge_s(dev_scripted: DevStack) -> None:
    status, body, _ = await post(dev_scripted, b" " * (12 << 20), bearer(dev_scripted.api_key))
    assert status == 413
    assert is_anthropic(body, "payload_too_large", "request_too_large")
    assert f"{12 << 20} bytes" in body["error"]["message"]
    assert "10485760" in body["error"]["message"]
    status, body, _ = await post(dev_scripted, b" " * (40 << 20), bearer(dev_scripted.api_key))
    assert status == 413
    assert is_openai(body, "payload_too_large", "invalid_request_error")


async def test_what_the_node_refuses_comes_in_its_own_shape(dev_scripted: DevStack) -> None:
    headers = bearer(dev_scripted.api_key)
    status, body, response = await post(dev_scripted, b"{", headers)
    assert status == 400
    assert is_anthropic(body, "invalid_request", "invalid_request_error")
    assert body["request_id"] == response.headers["request-id"]
    status, body, _ = await post(dev_scripted, json.dumps(BODY | {"nonsense": 1}).encode(), headers)
    assert status == 400
    assert is_anthropic(body, "unsupported_parameter", "invalid_request_error", "nonsense")
    assert body["error"]["message"] == "nonsense: Extra inputs are not permitted"
    status, body, _ = await post(dev_scripted, json.dumps(BODY | {"model": "claude-opus-5-5"}).encode(), headers)
    assert status == 404
    assert is_anthropic(body, "model_not_available", "not_found_error", "model")
    status, body, _ = await post(dev_scripted, b"hello", [*headers, ("Content-Type", "text/plain")], with_type=False)
    assert status == 415
    assert is_anthropic(body, "unsupported_media_type", "invalid_request_error")


async def test_routes_and_methods_that_do_not_exist_keep_the_shapes(dev_scripted: DevStack) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{dev_scripted.base_url}/v1/messages/batches") as response:
            assert response.status == 404
            assert is_openai(await response.json(), "not_found", "invalid_request_error")
        async with session.get(f"{dev_scripted.base_url}/v1/messages") as response:
            assert response.status == 405
            assert response.headers["Allow"] == "POST"
        async with session.get(f"{dev_scripted.edge_url}/nowhere") as response:
            assert response.content_type == "application/problem+json"
            assert (await response.json())["instance"] == response.headers["x-request-id"]
        async with session.get(f"{dev_scripted.edge_url}/metrics") as response:
            assert response.status == 404


async def test_the_list_of_models_comes_through(dev_scripted: DevStack) -> None:
    headers = {"Authorization": f"Bearer {dev_scripted.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{dev_scripted.base_url}/models", headers=headers) as got,
    ):
        assert [entry["id"] for entry in (await got.json())["data"]] == ["b3os/scripted"]
