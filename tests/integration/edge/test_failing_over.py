"""When another node is asked, and when none is: before the first byte of an answer, once, and never afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from edge.breaker import FAILURES, FIRST_OPEN_S
from edge.cluster import Carried, Cluster, Node
from edge.routing import Route
from edge.settings import EdgeSection
from edge.upstream import NodeClient, Outgoing
from shared.heartbeat import NODES, node_key, send_heartbeat
from shared.ids import new_request_id
from shared.node_hosts import PRIVATE, NodeHosts
from shared.node_token import Caller, mint
from shared.redis import connect_redis
from tests.heartbeats import heartbeat
from tests.integration.edge.parts import (
    MESSAGES,
    SIGNING_KEY,
    START,
    Answer,
    FakeNode,
    finding_nobody,
    make_key,
    running_edge,
    running_node,
    say_hello,
)
from tests.integration.edge.test_proxy import REFUSAL, bearer, drop, streaming
from tests.redis_server import as_user, free_port


async def not_started(request: web.Request) -> web.StreamResponse:
    del request
    return web.json_response(REFUSAL, status=503, headers={"x-b3os-not-started": "1", "Retry-After": "5"})


@contextlib.asynccontextmanager
async def cluster(redis_url: str, answers: Sequence[Answer]) -> AsyncIterator[tuple[list[FakeNode], Ask]]:
    """Nodes that answer so, behind one edge for which no time passes: whom it leaves alone it leaves alone."""
    async with contextlib.AsyncExitStack() as held:
        nodes = [await held.enter_async_context(running_node(f"n{number}")) for number in range(len(answers))]
        for node, answer in zip(nodes, answers, strict=True):
            node.answer = answer
        urls = {node.id: f"http://127.0.0.1:{node.port}" for node in nodes}
        edge = await held.enter_async_context(running_edge(redis_url, urls, time.time, lambda: 0.0))
        client = await held.enter_async_context(aiohttp.ClientSession(edge.url))
        yield nodes, Ask(client, (await make_key(edge.store))[1].token)


class Ask:
    """A client with a key."""

    def __init__(self, client: aiohttp.ClientSession, key: str) -> None:
        self._client, self._key = client, key

    async def __call__(self, number: int = 0) -> tuple[aiohttp.ClientResponse, bytes]:
        body = {"model": "b3os/a", "messages": [{"role": "user", "content": f"task {number}"}]}
        async with self._client.post(MESSAGES, json=body, headers=bearer(self._key)) as response:
            return response, await response.read()


async def test_a_node_that_breaks_off_before_its_answer_is_replaced_with_the_same_token(edge_redis_url: str) -> None:
    async with cluster(edge_redis_url, [drop, say_hello, say_hello]) as (nodes, ask):
        for number in range(8):
            response, _ = await ask(number)
            assert response.status == 200
    taken = {token.request_id for node in nodes[1:] for token in node.tokens}
    assert len(taken) == sum(len(node.tokens) for node in nodes[1:]) == 8
    assert nodes[0].tokens
    assert {token.request_id for token in nodes[0].tokens} <= taken
    assert not [request for request in nodes[0].requests if "x-b3os-repeated" in request.headers]
    repeated = [request for node in nodes[1:] for request in node.requests if "x-b3os-repeated" in request.headers]
    assert len(repeated) == len(nodes[0].requests)


async def test_another_node_gets_a_new_token() -> None:
    """The first one is too old by the time at which the first node is given up."""
    async with running_node("n2") as living:
        dead = Node("n1", f"http://127.0.0.1:{free_port()}")
        cluster = Cluster({}, NodeHosts(PRIVATE), time.monotonic)
        route = Route((dead, Node("n2", f"http://127.0.0.1:{living.port}")))
        ages_s = iter((1000, 0))

        def sign(route: Route) -> str:
            minted_s, request_id = int(time.time()) - next(ages_s), new_request_id()
            caller = Caller("acme", "main", "key", "key_1", ("infer:run",), {}, None)
            return mint(
                *(SIGNING_KEY, caller),
                audience=route.audience,
                request_id=request_id,
                method="POST",
                path=MESSAGES,
                now_s=minted_s,
            )

        async with NodeClient.opened(EdgeSection.model_validate({}), cluster) as client:
            with Carried() as carried:
                outgoing = Outgoing("POST", MESSAGES, CIMultiDict(), b"{}", sign)
                answer = await client.send_request(route, outgoing, carried, finding_nobody())
                answer.release()
        assert answer.status == 200
        assert client.taken_over == {"NodeNotReached": 1}


async def test_no_third_node_gets_what_two_may_have_begun(edge_redis_url: str) -> None:
    async with cluster(edge_redis_url, [drop, drop, drop]) as (nodes, ask):
        response, body = await ask()
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert b"node_unavailable" in body
    assert sorted(len(node.requests) for node in nodes) == [0, 1, 1]


async def test_nodes_that_refuse_connections_are_passed_over(edge_redis_url: str) -> None:
    async with running_node("n2") as living:
        gone = {name: f"http://127.0.0.1:{free_port()}" for name in ("n0", "n1")}
        nodes = {**gone, "n2": f"http://127.0.0.1:{living.port}"}
        async with running_edge(edge_redis_url, nodes) as edge, aiohttp.ClientSession(edge.url) as client:
            ask = Ask(client, (await make_key(edge.store))[1].token)
            for number in range(3 * FAILURES):
                response, _ = await ask(number)
                assert response.status == 200
    assert len(living.requests) == 3 * FAILURES


async def test_a_node_that_breaks_off_again_and_again_is_left_alone(edge_redis_url: str) -> None:
    many = 40
    async with cluster(edge_redis_url, [drop, say_hello]) as (nodes, ask):
        for response, _ in await asyncio.gather(*(ask(number) for number in range(FAILURES))):
            assert response.status == 200
        for number in range(many):
            assert (await ask(number))[0].status == 200
    assert FAILURES <= len(nodes[0].requests) < many / 4


async def test_a_node_that_takes_nothing_now_is_replaced_and_its_word_reaches_nobody(edge_redis_url: str) -> None:
    async with cluster(edge_redis_url, [not_started, say_hello]) as (nodes, ask):
        for number in range(8):
            response, _ = await ask(number)
            assert response.status == 200
            assert "x-b3os-not-started" not in response.headers
        assert len(nodes[0].requests) == 1  # it is left alone from then on


async def test_where_all_take_nothing_the_client_hears_why_of_a_node(edge_redis_url: str) -> None:
    async with cluster(edge_redis_url, [not_started, not_started]) as (nodes, ask):
        response, body = await ask()
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert b"invalid_request_error" in body  # the node's own body
    assert "x-b3os-not-started" not in response.headers
    assert [len(node.requests) for node in nodes] == [1, 1]


@contextlib.asynccontextmanager
async def registered(
    redis_url: str, *known: FakeNode
) -> AsyncIterator[tuple[Ask, Callable[[FakeNode], Awaitable[None]]]]:
    """An edge that knows these nodes and reads no more by itself, and how another one tells of itself."""
    operator = connect_redis(as_user("operator", redis_url))

    async def tell(node: FakeNode) -> None:
        await send_heartbeat(
            operator, heartbeat(node.id, url=f"http://127.0.0.1:{node.port}", boot=secrets.token_hex(4))
        )

    async with operator:
        try:
            for node in known:
                await tell(node)
            async with (
                running_edge(redis_url, {}, look_every_s=3600) as edge,
                aiohttp.ClientSession(edge.url) as client,
            ):
                yield Ask(client, (await make_key(edge.store))[1].token), tell
        finally:
            await operator.delete(NODES, *(node_key(f"n{number}") for number in range(3)))


async def test_a_request_that_all_known_nodes_turn_away_goes_to_one_that_came_since(edge_redis_url: str) -> None:
    """Nodes are replaced one by one: the next stops at the word of the one before, which no edge has heard yet."""
    async with running_node("n0") as old, running_node("n1") as new:
        old.answer = not_started
        async with registered(edge_redis_url, old) as (ask, tell):
            assert (await ask())[0].status == 503
            await tell(new)
            answers = await asyncio.gather(*(ask(number) for number in range(20)))
    assert [response.status for response, _ in answers] == [200] * 20
    assert {request.headers.get("x-b3os-repeated", "1") for request in new.requests} in ({"2"}, {"1", "2"})
    assert {token.request_id for token in new.tokens} == {answer.headers["x-request-id"] for answer, _ in answers}


async def test_a_request_goes_to_the_first_node_that_there_ever_was(edge_redis_url: str) -> None:
    async with running_node("n0") as node, registered(edge_redis_url) as (ask, tell):
        response, body = await ask()
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert b"node_unavailable" in body
        await tell(node)
        assert (await ask())[0].status == 200
    assert "x-b3os-repeated" not in node.requests[0].headers


async def test_a_request_goes_to_the_new_process_of_a_node_that_is_gone(edge_redis_url: str) -> None:
    async with running_node("n0") as before:
        pass
    async with running_node("n0") as now, registered(edge_redis_url, before) as (ask, tell):
        assert (await ask())[0].status == 503
        await tell(now)
        assert (await ask())[0].status == 200


async def test_who_turned_a_request_away_is_not_asked_again(edge_redis_url: str) -> None:
    async with running_node("n0") as node:
        node.answer = not_started
        async with registered(edge_redis_url, node) as (ask, _):
            response, _ = await ask()
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert len(node.requests) == 1


async def test_who_answered_is_not_asked_again_under_the_name_of_its_new_process(edge_redis_url: str) -> None:
    """The edge knew the one before; it was the new one that answered, and would have to refuse the same request."""
    async with running_node("n0") as node:
        node.answer = not_started
        async with registered(edge_redis_url, node) as (ask, tell):
            await tell(node)
            response, _ = await ask()
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert len(node.requests) == 1


async def test_a_living_node_is_found_among_those_that_are_gone(edge_redis_url: str) -> None:
    async with running_node("n0") as alive:
        gone = [FakeNode(f"n{number}", free_port()) for number in range(1, 6)]
        async with registered(edge_redis_url, alive, *gone) as (ask, _):
            for number in range(8):
                assert (await ask(number))[0].status == 200


async def test_a_node_that_came_since_gets_nothing_that_two_may_have_begun(edge_redis_url: str) -> None:
    async with running_node("n0") as one, running_node("n1") as two, running_node("n2") as three:
        one.answer = two.answer = drop
        async with registered(edge_redis_url, one, two) as (ask, tell):
            await tell(three)
            assert (await ask())[0].status == 503
    assert [len(node.requests) for node in (one, two, three)] == [1, 1, 0]


async def test_nothing_is_asked_again_after_the_first_byte(edge_redis_url: str) -> None:
    async with cluster(edge_redis_url, [streaming(START, cut=True)] * 2) as (nodes, ask):
        response, body = await ask()
    assert response.status == 200
    assert body.startswith(START + b"event: error\n")
    assert sorted(len(node.requests) for node in nodes) == [0, 1]


async def test_a_refusal_that_says_nothing_of_not_having_begun_is_the_answer(edge_redis_url: str) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        del request
        return web.json_response(REFUSAL, status=503, headers={"Retry-After": "1"})

    async with cluster(edge_redis_url, [refuse, refuse]) as (nodes, ask):
        response, _ = await ask()
    assert response.status == 503
    assert sorted(len(node.requests) for node in nodes) == [0, 1]


async def test_a_client_that_leaves_while_a_second_node_works_ends_that_work(edge_redis_url: str) -> None:
    begun = asyncio.Event()

    async def work(request: web.Request) -> web.StreamResponse:
        del request
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with cluster(edge_redis_url, [drop, work]) as (nodes, ask):
        for number in range(20):  # until one begins at the node that drops it
            begun.clear()
            asked = asyncio.create_task(ask(number))
            await begun.wait()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            async with asyncio.timeout(60):
                await nodes[1].abandoned.wait()
            nodes[1].abandoned.clear()
            if nodes[0].requests:
                break
        assert nodes[0].requests


async def test_a_client_that_leaves_while_its_request_tries_a_node_keeps_it_from_nobody() -> None:
    now_s, begun = 100.0, asyncio.Event()

    async def work(request: web.Request) -> web.StreamResponse:
        del request
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with running_node("n1") as node:
        node.answer = work
        cluster = Cluster(
            {"n1": f"http://127.0.0.1:{node.port}", "n2": "http://b"}, NodeHosts(PRIVATE), lambda: now_s
        )
        tried = next(each for each in cluster.list_nodes() if each.id == "n1")
        for _ in range(FAILURES):
            cluster.note_failure(tried)
        now_s += FIRST_OPEN_S

        def sign(route: Route) -> str:
            caller = Caller("acme", "main", "key", "key_1", ("infer:run",), {}, None)
            parts = {"audience": route.audience, "method": "POST", "path": MESSAGES, "now_s": int(time.time())}
            return mint(SIGNING_KEY, caller, request_id=new_request_id(), **parts)  # type: ignore[arg-type]

        outgoing, route = Outgoing("POST", MESSAGES, CIMultiDict(), b"{}", sign), Route((tried,))
        async with NodeClient.opened(EdgeSection.model_validate({}), cluster) as client:
            with Carried() as carried:
                asked = asyncio.create_task(client.send_request(route, outgoing, carried, finding_nobody()))
                await begun.wait()
                assert tried not in cluster.candidates(None)
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
        assert tried in cluster.candidates(None)
        assert tried.breaker.is_open


async def test_a_node_that_does_not_believe_the_edge_is_replaced_and_left_alone(edge_redis_url: str) -> None:
    async def rejecting(request: web.Request) -> web.StreamResponse:
        del request
        return web.json_response(REFUSAL, status=401)

    async with cluster(edge_redis_url, [rejecting, say_hello]) as (nodes, ask):
        for number in range(20):
            response, _ = await ask(number)
            assert response.status == 200
        assert len(nodes[0].requests) == FAILURES
        assert len(nodes[1].requests) == 20
