"""The table "Keys" of docs/wire.md; tests/integration/edge/ has the details."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edge.api.keys import USUAL_LIMIT
from edge.auth.key_store import MAX_GENERATIONS, MAX_KEYS, MAX_TOKENS
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


def test_keys_pages_go_on_where_one_ended(person: Person) -> None:
    made = [new_key(person)["id"] for _ in range(2)]
    first = person.send("GET", f"{KEYS}?limit=1").message
    second = person.send("GET", f"{KEYS}?limit=1&cursor={first['next_cursor']}").message
    assert len(first["data"]) == len(second["data"]) == 1
    assert first["data"] != second["data"]
    whole = person.send("GET", f"{KEYS}?limit=200").message
    assert set(made) <= {key["id"] for key in whole["data"]}
    assert USUAL_LIMIT == 50
    for wrong in ("0", "201"):
        assert person.send("GET", f"{KEYS}?limit={wrong}").problem() == (400, "invalid_request", "limit")


def test_keys_number_is_a_thousand_beside_twenty_tokens_a_user() -> None:
    """What becomes of one more: tests/integration/edge/test_keys.py and test_device.py."""
    assert (MAX_KEYS, MAX_TOKENS) == (1000, 20)


def test_keys_revoking_is_for_people_and_for_what_made_them(service: Service, person: Person) -> None:
    maker, other = (new_key(person, scopes=["keys:write", "infer:run"]) for _ in range(2))
    made = service.post({"name": "n", "project": "default"}, KEYS, Authorization=f"Bearer {maker['key']}").body
    for key_id in (maker["id"], made["id"]):
        answer = service.send(None, f"{KEYS}/{key_id}", "DELETE", key=other["key"])
        assert answer.problem() == (403, "forbidden", "id")
    assert service.send(None, f"{KEYS}/{made['id']}", "DELETE", key=maker["key"]).message["status"] == "revoked"
    assert service.send(None, f"{KEYS}/{other['id']}", "DELETE", key=other["key"]).message["status"] == "revoked"
    assert person.send("DELETE", f"{KEYS}/{maker['id']}").message["status"] == "revoked"


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
