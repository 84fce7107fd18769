"""Limits of an organization and the cap of a key, from the operator's command to the refusal.

tests/integration/node/test_admission.py has what is billed; tests/integration/limits the races.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
from collections.abc import Iterator
from typing import Any

from yarl import URL

from tests.contract.people import Person, b3os_admin
from tests.contract.service import COUNT, MESSAGES, Answer, Service
from tests.e2e.unheard import heard, is_unheard


class Tenant:
    """An organization of its own, with limits and one key."""

    def __init__(self, service: Service, **limits: int) -> None:
        self.service = service
        org = f"t{secrets.token_hex(5)}"
        b3os_admin(service.stack, "org", "create", org)
        b3os_admin(service.stack, "project", "create", org, "p")
        options = [word for name, limit in limits.items() for word in (f"--{name.replace('_', '-')}", str(limit))]
        b3os_admin(service.stack, "org", "limits", "set", org, *options)
        made = b3os_admin(service.stack, "keys", "create", f"--org={org}", "--project=p", "--name=t", "--json")
        self.key: str = json.loads(made)["key"]

    def ask(self, path: str = MESSAGES, **fields: Any) -> Answer:
        return self.service.send(json.dumps(self.service.body(**fields)).encode(), path, key=self.key)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While the body runs, so does a request of this organization."""
        raw = json.dumps(self.service.body([["text", "a"], ["pause", 600]], stream=True)).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        url = URL(self.service.stack.edge_url)
        with contextlib.closing(http.client.HTTPConnection(url.host or "", url.port)) as connection:

            def begin() -> http.client.HTTPResponse:
                connection.request("POST", MESSAGES, raw, headers)
                return connection.getresponse()

            answer = heard(begin, lambda answer: answer.status != 200 and is_unheard(answer.status, answer.read()))
            assert answer.status == 200
            yield


def test_a_rate_limit_names_itself_the_model_and_the_seconds(service: Service) -> None:
    tenant = Tenant(service, requests_per_minute=1)
    assert tenant.ask().status == 200
    for stream in (False, True):
        answer = tenant.ask(stream=stream)
        assert answer.refusal() == (429, "rate_limited", "rate_limit_error", None)
        seconds = answer.headers["retry-after"]
        for part in ("1 requests a minute", service.stack.model, f"retry in {seconds} second"):
            assert part in answer.words
    assert tenant.ask(COUNT).refusal()[1] == "rate_limited"


def test_no_more_run_at_once_than_may(service: Service) -> None:
    tenant = Tenant(service, concurrent_requests=1)
    with tenant.running():
        answer = tenant.ask()
    assert answer.refusal() == (429, "concurrency_limited", "rate_limit_error", None)
    assert "limit of 1 requests at once" in answer.words


def test_a_limit_of_0_is_no_429_since_waiting_would_not_help(service: Service) -> None:
    for name, words in (
        ("concurrent_requests", "limit of requests at once is 0"),
        ("requests_per_minute", f"limit of requests a minute for {service.stack.model} is 0"),
        ("tokens_per_minute", f"limit of tokens a minute for {service.stack.model} is 0"),
    ):
        answer = Tenant(service, **{name: 0}).ask()
        assert answer.refusal() == (400, "invalid_request", "invalid_request_error", None)
        assert words in answer.words
        assert "retry-after" not in answer.headers


def test_a_spend_cap_is_reached_by_what_an_answer_may_cost(service: Service, person: Person) -> None:
    cap = {"nano_usd": 1, "period": "total"}
    made = person.send("POST", "/v1/keys", {"name": "n", "project": "default", "spend_cap": cap})
    answer = service.send(json.dumps(service.body()).encode(), key=made.body["key"])
    assert answer.refusal() == (402, "spend_cap_reached", "billing_error", None)


def test_what_no_minute_has_room_for_is_no_429(service: Service) -> None:
    answer = Tenant(service, tokens_per_minute=10).ask(max_tokens=11)
    assert answer.refusal() == (400, "invalid_request", "invalid_request_error", "max_tokens")
    assert "10 a minute" in answer.words


def test_the_requests_meter_is_told_on_success_and_on_429(service: Service) -> None:
    tenant = Tenant(service, requests_per_minute=1)
    for answer, left in ((tenant.ask(), "0"), (tenant.ask(), "0")):
        assert (answer.headers["ratelimit-limit"], answer.headers["ratelimit-remaining"]) == ("1", left)
        assert 1 <= int(answer.headers["ratelimit-reset"]) <= 65
    assert not [name for name in service.ask().headers if name.startswith("ratelimit")]
