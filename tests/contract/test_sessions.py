"""The table "Sessions" of docs/wire.md; tests/integration/edge/ has the details."""

from __future__ import annotations

import json

import pytest

from edge.auth.sessions import IDLE_S, LIFETIME_S
from tests.contract.people import PASSWORD, Person
from tests.contract.service import MESSAGES, Service

SESSION, LOGIN, KEYS = "/v1/auth/session", "/v1/auth/login", "/v1/keys"


def test_sessions_host_names_other_than_the_dashboard_s_make_a_cookie_nothing(
    service: Service, person: Person
) -> None:
    assert person.send("GET", SESSION).status == 200
    assert person.send("GET", SESSION, Host="api.example.com").problem() == (401, "unauthorized", None)
    answer = service.send(None, KEYS, "GET", Host="api.example.com")
    assert answer.problem()[:2] == (403, "forbidden")  # the key counts; it lacks a scope


@pytest.mark.parametrize(
    "headers", [{"x_b3os_csrf": ""}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "", "Origin": "null"}]
)
def test_sessions_token_and_origin_are_demanded(person: Person, headers: dict[str, str]) -> None:
    assert person.send("POST", KEYS, {}, **headers).problem() == (403, "forbidden", None)
    assert person.send("GET", KEYS, **headers).status == 200


def test_sessions_log_in_tells_nothing_of_who_exists(service: Service, person: Person) -> None:
    tries = ({"email": person.email, "password": "wrong"}, {"email": "nobody@example.com", "password": "x"})
    answers = [service.send(_json(body), LOGIN, key="") for body in tries]
    assert [answer.problem() for answer in answers] == [(401, "unauthorized", None)] * 2
    assert len({answer.body["detail"] for answer in answers}) == 1
    assert service.send(_json(tries[0]), LOGIN, key="", Content_Type="text/plain").status == 415
    assert service.send(_json(tries[0]), LOGIN, key="", Origin="https://evil.example").status == 403


def test_sessions_new_value_at_every_change(service: Service, person: Person) -> None:
    seen = {person.cookie}
    person.log_in()
    seen.add(person.cookie)
    person.take(person.send("POST", "/v1/auth/organization", {"organization": "dev"}))
    seen.add(person.cookie)
    new = {"current_password": PASSWORD, "new_password": "a new and longer one"}
    person.take(person.send("POST", "/v1/auth/password", new))
    seen.add(person.cookie)
    assert len(seen) == 4
    old = [Person(service, person.email, cookie) for cookie in seen - {person.cookie}]
    assert [each.send("GET", SESSION).status for each in old] == [401, 401, 401]
    back = {"current_password": "a new and longer one", "new_password": PASSWORD}
    person.take(person.send("POST", "/v1/auth/password", back))


def test_sessions_end_after_the_times_that_the_table_tells() -> None:
    assert (LIFETIME_S, IDLE_S) == (14 * 24 * 3600, 12 * 3600)


def test_sessions_inference_takes_the_cookie(service: Service, person: Person) -> None:
    assert person.send("POST", MESSAGES, service.body()).message["type"] == "message"
    assert person.send("POST", MESSAGES, service.body(), x_b3os_csrf="").edge_refusal()[:2] == (403, "forbidden")


def _json(body: object) -> bytes:
    return json.dumps(body).encode()
