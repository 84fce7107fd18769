"""The table "Requests" of docs/wire.md, by what real requests leave; tests/integration/edge/ has the details."""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest
from yarl import URL

from edge.api.usage import MOST_DAYS
from edge.auth.scopes import SCOPES
from node.limits.redis_limiter import MOST_FREE
from shared.ids import REQUEST_ID
from tests.contract.people import Person
from tests.contract.service import MESSAGES, Answer, Service
from tests.e2e.test_refusals import new_key
from tests.e2e.unheard import heard, is_unheard

REQUESTS, USAGE = "/v1/requests", "/v1/usage"
WITHIN_S = 60.0
ENDS: list[Any] = [["text", "Hel"], ["text", "lo"]]


@dataclass(frozen=True)
class Books:
    """An organization of one module's own, by a key that may do everything."""

    service: Service
    key: str
    key_id: str

    def get(self, path: str) -> Answer:
        return self.service.send(None, path, "GET", key=self.key)

    def ask(self, **fields: Any) -> str:
        """The id of a request."""
        raw = json.dumps(self.service.body(ENDS, **fields)).encode()
        return self.service.send(raw, key=self.key).headers["request-id"]

    def wait_for(self, request_id: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The record, once it is so: a node writes it beside the answer."""
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            answer = self.get(f"{REQUESTS}/{request_id}")
            if answer.status == 200 and is_so(answer.body):
                return answer.body
            assert time.monotonic() < deadline_s, answer.raw
            time.sleep(0.02)

    def ended(self, request_id: str) -> dict[str, Any]:
        return self.wait_for(request_id, lambda record: record["outcome"] != "running")


@pytest.fixture(scope="module")
def books(service: Service) -> Books:
    made = new_key(
        service.stack,
        *(f"--org=books-{secrets.token_hex(4)}", "--create-missing"),
        *(f"--scope={scope}" for scope in SCOPES),
    )
    return Books(service, made["key"], made["id"])


def test_requests_record_tells_all_but_the_words(books: Books) -> None:
    request_id = books.ask(system="Be secret.")
    record = books.ended(request_id)
    assert set(record) == {
        *("id", "created_at", "key_id", "project", "model", "node", "outcome", "status", "error_code", "stop_reason"),
        *("usage", "cost_nano_usd", "price", "ttft_ms", "total_ms", "phases_ms"),
    }
    assert (record["id"], record["key_id"], record["project"]) == (request_id, books.key_id, "default")
    assert (record["outcome"], record["status"], record["stop_reason"]) == ("finished", 200, "end_turn")
    assert record["usage"]["output_tokens"] == 2
    assert "secret" not in json.dumps(record)
    assert books.key not in json.dumps(record)


def test_requests_running_is_there_before_its_end(books: Books) -> None:
    url = URL(books.service.stack.edge_url)
    script = [["text", "Hel"], ["pause", 600], ["text", "lo"]]
    raw = json.dumps(books.service.body(script, stream=True)).encode()
    connection = http.client.HTTPConnection(url.host or "", url.port)
    headers = {"x-api-key": books.key, "Content-Type": "application/json"}

    def begin() -> http.client.HTTPResponse:
        connection.request("POST", MESSAGES, raw, headers)
        return connection.getresponse()

    response = heard(begin, lambda response: response.status != 200 and is_unheard(response.status, response.read()))
    request_id = response.headers["request-id"]
    running = books.get(f"{REQUESTS}/{request_id}").message
    assert (running["outcome"], running["status"], running["cost_nano_usd"]) == ("running", None, 0)
    assert [each["id"] for each in books.get(f"{REQUESTS}?status=running").message["data"]] == [request_id]
    response.close()
    connection.close()
    assert books.ended(request_id)["outcome"] == "client_gone"


def test_requests_refused_are_there_with_their_code(books: Books) -> None:
    assert MOST_FREE == 1000
    request_id = books.ask(model="b3os/other")
    record = books.wait_for(request_id, lambda record: True)
    assert (record["outcome"], record["status"], record["error_code"]) == ("refused", 404, "model_not_available")
    assert record["cost_nano_usd"] == 0


def test_requests_pages_lead_to_each_other(books: Books) -> None:
    ids = [books.ask() for _ in range(3)]
    for each in ids:
        books.ended(each)
    finished = f"{REQUESTS}?status=finished"  # one that Redis had no second for may be among the others
    first = books.get(f"{finished}&limit=2").message
    assert [each["id"] for each in first["data"]] == ids[:0:-1]
    second = books.get(f"{finished}&limit=1&cursor={first['next_cursor']}").message
    assert [each["id"] for each in second["data"]] == ids[:1]
    for wrong in ("0", "101", "x"):
        assert books.get(f"{REQUESTS}?limit={wrong}").problem() == (400, "invalid_request", "limit")
    assert books.get(f"{REQUESTS}?cursor=x").problem() == (400, "invalid_request", "cursor")


def test_requests_filters_narrow_the_list(books: Books) -> None:
    finished = books.ask()
    assert books.ended(finished)["outcome"] == "finished"

    def listed(query: str) -> list[str]:
        return [each["id"] for each in books.get(f"{REQUESTS}?limit=1&{query}").message["data"]]

    model = books.service.stack.model
    for query in (f"key={books.key_id}", f"model={model}", "status=200", "status=finished"):
        assert listed(query) == [finished]
    for query in ("key=nobody", "model=b3os/nothing", "status=503", "status=abandoned"):
        assert listed(query) == []
    assert books.get(f"{REQUESTS}?status=never").problem() == (400, "invalid_request", "status")


def test_requests_usage_is_by_days_of_utc(books: Books) -> None:
    first = date.fromisoformat(books.ended(books.ask())["created_at"][:10])
    last = first + timedelta(days=1)  # it may be midnight between arrival and admission
    told = books.get(f"{USAGE}?from={first}&to={last}").message
    assert (told["by"], told["from"], told["to"]) == ("day", str(first), str(last))
    assert {row["day"] for row in told["data"]} <= {str(first), str(last)}
    assert told["total"]["requests"] >= 1
    assert told["total"] == {name: sum(row[name] for row in told["data"]) for name in told["total"]}
    assert MOST_DAYS == 366
    assert books.get(f"{USAGE}?from=2025-01-01&to=2026-01-02").problem() == (400, "invalid_request", "from")
    by_key = books.get(f"{USAGE}?by=key&from={first}&to={last}").message["data"]
    assert [each["key_id"] for each in by_key] == [books.key_id]


@pytest.mark.parametrize("path", [REQUESTS, USAGE])
def test_requests_unknown_parameters_are_refused_by_their_name(books: Books, path: str) -> None:
    assert books.get(f"{path}?keys=1").problem() == (400, "invalid_request", "keys")
    twice = {REQUESTS: "limit=1&limit=1", USAGE: "by=day&by=day"}[path]
    assert books.get(f"{path}?{twice}").problem() == (400, "invalid_request", twice.partition("=")[0])


def test_requests_other_organizations_have_are_a_404(books: Books, person: Person) -> None:
    request_id = books.ask()
    assert REQUEST_ID.fullmatch(request_id)
    assert books.ended(request_id)["id"] == request_id
    assert person.send("GET", f"{REQUESTS}/{request_id}").problem() == (404, "not_found", "id")
