"""The table "Devices" of docs/wire.md; tests/integration/edge/test_device.py has the details."""

from __future__ import annotations

import re
from typing import Any

from edge.auth.device import INTERVAL_S, LIFETIME_S, MAX_WRONG_CODES
from tests.contract.people import Person
from tests.contract.service import Answer, Service

DEVICE = "/v1/auth/device"
GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def begin(service: Service) -> dict[str, Any]:
    return service.send(b'{"client":"b3os-cli"}', f"{DEVICE}/code", key="").message


def fetch(service: Service, codes: dict[str, Any]) -> Answer:
    body = {"grant_type": GRANT, "device_code": codes["device_code"]}
    return Person(service, "").send("POST", f"{DEVICE}/token", body)


def decide(person: Person, codes: dict[str, Any], decision: str, **headers: str) -> int:
    body = {"user_code": codes["user_code"], "decision": decision, "organization": "dev", "project": "default"}
    return person.send("POST", f"{DEVICE}/decision", body, **headers).status


def test_devices_codes_live_for_ten_minutes(service: Service) -> None:
    codes = begin(service)
    assert re.fullmatch(r"[\w-]{43}", codes["device_code"])
    assert re.fullmatch(r"[B-DF-HJ-NP-TV-XZ]{4}-[B-DF-HJ-NP-TV-XZ]{4}", codes["user_code"])
    assert codes["verification_uri"] == f"{service.stack.edge_url}/device"
    assert codes["expires_in"] == LIFETIME_S == 600


def test_devices_waiting_is_told_its_pace(service: Service) -> None:
    codes = begin(service)
    assert codes["interval"] == INTERVAL_S == 5
    answers = [fetch(service, codes) for _ in range(2)]
    assert [answer.problem(and_has="error")[1] for answer in answers] == ["authorization_pending", "slow_down"]


def test_devices_decision_needs_a_session_with_its_token(service: Service, person: Person) -> None:
    codes = begin(service)
    shown = person.send("GET", f"{DEVICE}?user_code={codes['user_code']}").message
    assert (shown["client"], shown["address"]) == ("b3os-cli", "127.0.0.1")
    blind = person.send("GET", f"{DEVICE}?user_code={codes['user_code']}", x_b3os_csrf="")
    assert blind.problem() == (403, "forbidden", None)
    assert decide(person, codes, "approve", x_b3os_csrf="") == 403
    assert decide(Person(service, ""), codes, "approve") == 401
    assert decide(person, codes, "approve") == 204


def test_devices_token_is_fetched_once(service: Service, person: Person) -> None:
    codes = begin(service)
    assert decide(person, codes, "approve") == 204
    token = fetch(service, codes).message["access_token"]
    assert fetch(service, codes).problem(and_has="error")[1] == "expired_token"
    assert service.send(b"{}", key=token).status == 400
    assert service.send(None, "/v1/auth/logout", key=token).status == 204
    assert service.send(b"{}", key=token).status == 401
    codes = begin(service)
    assert decide(person, codes, "deny") == 204
    assert fetch(service, codes).problem(and_has="error")[1] == "access_denied"


def test_devices_wrong_codes_are_limited_to_ten() -> None:
    assert MAX_WRONG_CODES == 10
