"""Nobody asks so often, or so much at once, that others have to wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import aiohttp
import pytest
from redis.asyncio import BlockingConnectionPool

from edge.api.gate import AT_ONCE, AT_ONCE_OF_MANY, AT_ONCE_SURELY, LISTS, MANY, SURE
from edge.app import OPEN
from edge.auth.accounts import User
from edge.auth.credentials import mint_credential
from edge.auth.key_record import KeyRecord
from edge.auth.key_store import KeyPage, RedisKeyStore
from edge.auth.scopes import SCOPES
from edge.rates import Rates
from shared.ids import new_record_id
from tests.integration.edge.parts import MODELS, Edge, FakeNode, make_key, running_edge
from tests.integration.edge.people import KEYS, LOGIN, PASSWORD, SESSION, SWITCH, Answer, Page, make_user
from tests.integration.edge.test_matrix import ROUTES
from tests.integration.edge.test_matrix import ask as ask_route

BURST = 4
SURELY = 1
"""What a tenth of it comes to: one has so much beside it that nobody else uses up."""


@pytest.fixture
async def edge(edge_redis_url: str, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Edge]:
    """An edge where the next request after a burst never comes, however long a test takes."""
    monkeypatch.setattr("edge.api.gate.Rates", lambda _: Rates(lambda: 0.0))
    nodes = {node.id: f"http://127.0.0.1:{node.port}"}
    bounds = {"management_per_minute": 1, "management_burst": BURST, "trusted_proxies": 1}
    # Nor does it read the registry meanwhile: what it asks of Redis is counted.
    async with running_edge(edge_redis_url, nodes, look_every_s=3600, **bounds) as running:
        yield running


async def keyed(edge: Edge, client: aiohttp.ClientSession, org: str = "acme") -> Page:
    _, credential = await make_key(edge.store, scopes=SCOPES, org=org)
    return Page(client, headers={"x-api-key": credential.token})


async def asked_until_refused(ask: Callable[[], Awaitable[Answer]]) -> int:
    """How many were answered before one was refused."""
    for answered in range(1000):
        answer = await ask()
        if answer.status == 429:
            assert answer.problem() == (429, "rate_limited", None)
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
            return answered
    raise AssertionError("nothing is ever refused")


COUNTED = [route for route in ROUTES if not route[1].startswith("/v1/infer")]


@pytest.mark.parametrize("route", COUNTED, ids=" ".join)
async def test_a_key_asks_so_often_and_no_oftener(
    edge: Edge, client: aiohttp.ClientSession, route: tuple[str, str]
) -> None:
    page, other = await keyed(edge, client, "often"), await keyed(edge, client, "seldom")
    assert await asked_until_refused(lambda: ask_route(page, route)) == BURST + SURELY
    assert (await ask_route(other, route)).status != 429


async def test_who_is_refused_costs_redis_nothing(edge: Edge, client: aiohttp.ClientSession) -> None:
    page = await keyed(edge, client, "quiet")
    await asked_until_refused(lambda: page.get(KEYS))

    async def count() -> int:
        stats = await edge.redis.info("commandstats")
        return sum(
            int(stats[name]["calls"]) for name in stats if not name.startswith(("cmdstat_info", "cmdstat_ping"))
        )

    before = await count()
    for _ in range(20):
        assert (await page.get(KEYS)).status == 429
    assert await count() == before


async def test_inference_does_not_count(edge: Edge, client: aiohttp.ClientSession) -> None:
    page = await keyed(edge, client, "infers")
    for _ in range(3 * BURST):
        assert (await page.get(MODELS)).status == 200
    assert await asked_until_refused(lambda: page.get(KEYS)) == BURST + SURELY


LISTS_AT_ONCE = round(BURST * LISTS * (1 + SURE))
MODEL_ROUTES = [path for method, path in ROUTES if "/models" in path]


@pytest.mark.parametrize("path", MODEL_ROUTES)
async def test_models_are_asked_for_more_often_but_not_without_end(
    edge: Edge, client: aiohttp.ClientSession, node: FakeNode, path: str
) -> None:
    page, other = await keyed(edge, client, "starts"), await keyed(edge, client, "starts later")
    for _ in range(LISTS_AT_ONCE):
        assert (await page.get(path)).status == 200
    answer = await page.get(path)
    assert answer.status == 429
    assert len(node.requests) == LISTS_AT_ONCE
    assert (answer.body["error"]["code"], answer.headers["Retry-After"]) == ("rate_limited", "6")
    assert (await other.get(path)).status == 200
    assert (await page.get(KEYS)).status == 200


async def test_many_keys_of_an_organization_count_together_and_leave_each_a_part(
    edge: Edge, client: aiohttp.ClientSession
) -> None:
    async def ask_with_another() -> int:
        page = await keyed(edge, client, "many")
        return await asked_until_refused(lambda: page.get(KEYS))

    assert [await ask_with_another() for _ in range(MANY + 2)] == [BURST + SURELY] * MANY + [SURELY] * 2
    assert (await (await keyed(edge, client, "other")).get(KEYS)).status == 200


async def token_of(edge: Edge, client: aiohttp.ClientSession, user: User, org: str) -> Page:
    credential = mint_credential("pat")
    record = KeyRecord(
        new_record_id("tok"), "pat", org, "main", "cli", SCOPES, "active", credential.hint, 1, None, made_by=user.id
    )
    await edge.store.create_key(credential.digest, replace(record, password_version=user.password_version))
    return Page(client, headers={"x-api-key": credential.token})


async def test_tokens_and_keys_give_a_user_no_more(edge: Edge, client: aiohttp.ClientSession) -> None:
    user = await make_user(edge, ("tokens", "owner"))
    page = Page(client)
    await page.log_in(user)
    body = {"name": "n", "project": "main", "scopes": ["keys:read", "keys:write"]}
    keys = [Page(client, headers={"x-api-key": (await page.post(KEYS, body)).body["key"]})]
    keys += [Page(client, headers={"x-api-key": (await keys[0].post(KEYS, body)).body["key"]})]
    tokens = [await token_of(edge, client, user, "tokens") for _ in range(3)]
    left = BURST - 2
    asked = [await asked_until_refused(functools.partial(one.get, KEYS)) for one in (*keys, *tokens)]
    assert asked == [left + SURELY, 0, SURELY, SURELY, SURELY]  # keys of one user are one


async def test_whoever_has_a_user_s_key_keeps_him_from_ending_nothing(
    edge: Edge, client: aiohttp.ClientSession
) -> None:
    user = await make_user(edge, ("stolen", "owner"))
    page = Page(client)
    await page.log_in(user)
    made = await page.post(KEYS, {"name": "n", "project": "main", "scopes": ["keys:read"]})
    thief = Page(client, headers={"x-api-key": made.body["key"]})
    await asked_until_refused(lambda: thief.get(KEYS))
    assert (await page.send("DELETE", f"{KEYS}/{made.body['id']}")).status == 200
    assert (await thief.get(KEYS)).status == 401


async def test_whoever_was_thrown_out_uses_up_nothing_of_the_organization(
    edge: Edge, client: aiohttp.ClientSession
) -> None:
    others = [await keyed(edge, client, "left") for _ in range(MANY)]
    for _ in range(MANY + 1):
        user, page = await make_user(edge, ("left", "member")), Page(client)
        await page.log_in(user)
        await edge.accounts.remove_member("left", user.id)
        await asked_until_refused(lambda page=page: page.get(SESSION))  # type: ignore[misc]
    assert [await asked_until_refused(functools.partial(one.get, KEYS)) for one in others] == [BURST + SURELY] * MANY


async def test_new_sessions_give_a_user_no_more(edge: Edge, client: aiohttp.ClientSession) -> None:
    user = await make_user(edge, ("here", "owner"), ("there", "owner"))
    page = Page(client)
    await page.log_in(user)

    async def switch() -> Answer:
        answer = await page.post(SWITCH, {"organization": next(places)})
        return answer if answer.status == 429 else page.take(answer)

    places = itertools.cycle(("there", "here"))
    assert await asked_until_refused(switch) == BURST + SURELY


@pytest.mark.parametrize("path", [*sorted(OPEN), SESSION, KEYS])
async def test_who_shows_nothing_counts_by_his_address(edge: Edge, client: aiohttp.ClientSession, path: str) -> None:
    async def ask(address: str) -> Answer:
        page = Page(client, headers={"X-Forwarded-For": address})
        return await page.send("POST" if path in OPEN else "GET", path, {} if path in OPEN else None)

    assert await asked_until_refused(lambda: ask("8.8.8.8")) == BURST
    assert (await ask("8.8.4.4")).status != 429


async def test_the_networks_of_one_site_count_together(edge: Edge, client: aiohttp.ClientSession) -> None:
    numbers = iter(range(1000))

    async def ask(site: str) -> Answer:
        return await Page(client, headers={"X-Forwarded-For": f"{site}:{next(numbers):x}::1"}).get(SESSION)

    assert BURST < await asked_until_refused(lambda: ask("2600:1:2")) < 100
    assert (await ask("2600:1:3")).status == 401


async def test_a_credential_that_nobody_has_counts_by_the_address(edge: Edge, client: aiohttp.ClientSession) -> None:
    cookies = iter(f"{at:043}" for at in range(1000))

    async def ask() -> Answer:
        return await Page(client, cookie=next(cookies), headers={"X-Forwarded-For": "8.8.8.8"}).get(SESSION)

    assert await asked_until_refused(ask) == BURST


async def test_whoever_logs_in_counts_by_his_address_whatever_he_has(
    edge: Edge, client: aiohttp.ClientSession
) -> None:
    pages = itertools.cycle([await keyed(edge, client, org) for org in ("one", "two", "three")])
    assert await asked_until_refused(lambda: next(pages).post(LOGIN, {}, X_Forwarded_For="8.8.8.8")) == BURST


@pytest.fixture
async def roomy(edge_redis_url: str, node: FakeNode) -> AsyncIterator[Edge]:
    """An edge with the usual rate."""
    async with running_edge(edge_redis_url, {node.id: f"http://127.0.0.1:{node.port}"}) as running:
        yield running


async def drip(edge: Edge, held: contextlib.AsyncExitStack, headers: dict[str, str], path: str = KEYS) -> bytes:
    """Begin to make a key and keep the body back; the first line of what is answered before it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
    held.callback(writer.close)
    head = (
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{edge.port}",
        *(f"{name}: {value}" for name, value in headers.items()),
    )
    more = ("Content-Type: application/json", "Content-Length: 9", "Expect: 100-continue", "", "")
    writer.write("\r\n".join((*head, *more)).encode())
    return await reader.readuntil(b"\r\n")


async def test_whoever_keeps_a_body_back_takes_nobody_s_place(roomy: Edge) -> None:
    async with aiohttp.ClientSession(roomy.url) as client, contextlib.AsyncExitStack() as held:
        thief = await keyed(roomy, client, "slow")
        for _ in range(2 * AT_ONCE_OF_MANY):
            assert b" 100 " in await drip(roomy, held, thief.headers)
        assert (await thief.get(KEYS)).status == 200
        assert (await (await keyed(roomy, client, "slow")).get(KEYS)).status == 200


async def test_whoever_keeps_log_ins_back_takes_nobody_s_place(edge_redis_url: str) -> None:
    async with (
        running_edge(edge_redis_url, {}, trusted_proxies=1) as edge,
        aiohttp.ClientSession(edge.url) as client,
        contextlib.AsyncExitStack() as held,
    ):
        page, user, address = Page(client), await make_user(edge), {"X-Forwarded-For": "8.8.8.8"}
        for _ in range(2 * AT_ONCE):
            assert b" 100 " in await drip(edge, held, {**page.headers, **address}, LOGIN)
        body = {"email": user.email, "password": PASSWORD}
        assert (await page.post(LOGIN, body, **{"X-Forwarded-For": "8.8.8.8"})).status == 200


async def test_so_many_run_at_once_and_no_more(roomy: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aiohttp.ClientSession(roomy.url) as client, asyncio.TaskGroup() as group:
        goes_on, running = asyncio.Event(), asyncio.Semaphore(0)

        async def wait(*_: object, **__: object) -> KeyPage:
            running.release()
            await goes_on.wait()
            return KeyPage((), None)

        monkeypatch.setattr("edge.auth.store.LOOKUP_S", 600.0)
        monkeypatch.setattr(RedisKeyStore, "fetch_page", wait)
        begun: list[asyncio.Task[Answer]] = []

        async def run(page: Page, count: int) -> None:
            begun.extend(group.create_task(page.get(KEYS)) for _ in range(count))
            for _ in range(count):
                await running.acquire()
            refused = await page.get(KEYS)
            assert refused.problem() == (429, "rate_limited", None)
            assert refused.headers["Retry-After"] == "1"

        first, second, third = [await keyed(roomy, client, "slow") for _ in range(3)]
        await run(first, AT_ONCE + AT_ONCE_SURELY)
        await run(second, AT_ONCE_OF_MANY - AT_ONCE + AT_ONCE_SURELY)
        await run(third, AT_ONCE_SURELY)
        assert (await third.get(SESSION)).status == 429
        assert (await (await keyed(roomy, client, "quick")).get(SESSION)).status == 200
        goes_on.set()
        assert {(await each).status for each in begun} == {200}
        assert (await first.get(KEYS)).status == 200


async def test_whoever_waits_for_lists_keeps_no_key_from_being_known(roomy: Edge) -> None:
    """All connections for lists are taken: the key is looked up on another."""
    pool = roomy.store._redis.connection_pool
    assert isinstance(pool, BlockingConnectionPool)
    left = pool.max_connections - 1  # one hears of revocations
    taken = [await pool.get_connection() for _ in range(left)]  # type: ignore[no-untyped-call]
    try:
        _, credential = await make_key(roomy.store.__class__(roomy.redis), org="acme")
        async with aiohttp.ClientSession(roomy.url) as client:
            page = Page(client, headers={"x-api-key": credential.token})
            assert (await page.get(MODELS)).status == 200
    finally:
        for connection in taken:
            await pool.release(connection)
