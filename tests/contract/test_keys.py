"""The table "Keys" of docs/wire.md; tests/integration/edge/ has the details."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edge.auth.key_store import MAX_GENERATIONS
from edge.auth.scopes import ROLES, SCOPES
from tests.contract.people import Person
from tests.contract.service import Service

KEYS = "/v1/keys"
WIRE = Path(__file__).parents[2] / "docs" / "wire.md"


def new_key(person: Person, **fields: Any) -> dict[str, Any]:
    answer = person.send("POST", KEYS, {"name": "test", "project": "default", **fields})
    assert answer.status == 201, answer.raw
    return answer.body


def test_keys_scopes_are_these_and_never_more_than_the_maker_s(service: Service, person: Person) -> None:
    told = re.search(r"^\| scopes \| (.*?);", WIRE.read_text(), re.MULTILINE)
    assert told is not None
    assert tuple(re.findall(r"`([^`]+)`", told[1])) == SCOPES
    assert new_key(person)["scopes"] == list(SCOPES[:2])
    maker = new_key(person, scopes=["keys:write"])["key"]
    body = {"name": "n", "project": "default", "scopes": ["infer:run"]}
    assert service.post(body, KEYS, Authorization=f"Bearer {maker}").problem() == (403, "forbidden", "scopes.0")


def test_keys_roles_have_the_scopes_of_the_table() -> None:
    assert set(ROLES) == {"owner", "admin", "member"}
    assert ROLES["owner"] == ROLES["admin"] == SCOPES
    assert set(SCOPES) - set(ROLES["member"]) == {"keys:write"}


def test_keys_maker_that_ends_ends_them(service: Service, person: Person) -> None:
    maker = new_key(person, scopes=["keys:write", "infer:run"])
    made = service.post({"name": "n", "project": "default"}, KEYS, Authorization=f"Bearer {maker['key']}").body
    assert service.send(b"{}", key=made["key"]).status == 400
    assert person.send("DELETE", f"{KEYS}/{maker['id']}").message["status"] == "revoked"
    assert service.send(b"{}", key=made["key"]).status == 401


def test_keys_generations_end_after_two_and_with_a_spend_cap(service: Service, person: Person) -> None:
    assert MAX_GENERATIONS == 3
    body = {"name": "n", "project": "default", "scopes": ["keys:write"]}
    capped = new_key(person, scopes=["keys:write"], spend_cap={"nano_usd": 1, "period": "day"})["key"]
    assert service.post(body, KEYS, Authorization=f"Bearer {capped}").problem()[:2] == (403, "forbidden")
    key = new_key(person, scopes=["keys:write"])["key"]
    for status in (201, 201, 403):
        answer = service.post(body, KEYS, Authorization=f"Bearer {key}")
        assert answer.status == status
        key = answer.body.get("key", key)


def test_keys_spend_cap_has_an_amount_and_a_period(person: Person) -> None:
    for period in ("day", "month", "total"):
        cap = {"nano_usd": 1_000_000_000, "period": period}
        assert new_key(person, spend_cap=cap)["spend_cap"] == cap
    body = {"name": "n", "project": "default", "spend_cap": {"nano_usd": 1, "period": "week"}}
    assert person.send("POST", KEYS, body).problem() == (400, "invalid_request", "spend_cap.period")


def test_keys_expiry_is_a_time_with_its_offset(person: Person) -> None:
    assert new_key(person, expires_at="2036-01-31T12:00:00+02:00")["expires_at"] == "2036-01-31T10:00:00Z"
    for wrong in ("2036-01-31T12:00:00", "2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"):
        body = {"name": "n", "project": "default", "expires_at": wrong}
        assert person.send("POST", KEYS, body).problem() == (400, "invalid_request", "expires_at")


def test_keys_cli_tokens_are_keys_of_a_user(service: Service, person: Person) -> None:
    codes = service.send(b"{}", "/v1/auth/device/code", key="").message
    body = {"user_code": codes["user_code"], "decision": "approve"}
    assert person.send("POST", "/v1/auth/device/decision", body).status == 204
    grant = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": codes["device_code"]}
    answer = person.send("POST", "/v1/auth/device/token", grant).message
    assert answer["scope"].split() == list(ROLES["owner"])
    assert answer["expires_in"] == 90 * 24 * 3600


def test_keys_other_organizations_have_are_a_404(person: Person) -> None:
    assert person.send("DELETE", f"{KEYS}/key_0000000000000000").problem() == (404, "not_found", "id")
