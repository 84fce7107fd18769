"""The table "Routes" of docs/wire.md."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.contract.people import Person
from tests.contract.service import COUNT, MESSAGES, PREFIX, Service

WHOLE = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage", "b3os"}


@pytest.mark.parametrize("query", ["", "?beta=true", "?a=1&a=2&%00"])
def test_routes_post_v1_infer_v1_messages(service: Service, query: str) -> None:
    answer = service.post(service.body(), f"{MESSAGES}{query}")
    assert set(answer.message) == WHOLE
    assert service.ask(stream=True).events


def test_routes_post_v1_infer_messages_is_the_same(service: Service) -> None:
    assert set(service.post(service.body(), f"{PREFIX}/messages").message) == WHOLE
    assert service.post(service.body(stream=True), f"{PREFIX}/messages?beta=true").events


def test_routes_post_v1_infer_v1_messages_count_tokens_needs_no_max_tokens(service: Service) -> None:
    body = service.body("one two three", system="four")
    counted = service.post({name: value for name, value in body.items() if name != "max_tokens"}, COUNT)
    assert counted.message == {"input_tokens": 4}
    assert service.post(body).message["usage"]["input_tokens"] == 4


def test_routes_get_v1_infer_models_in_openai_s_shape(service: Service) -> None:
    listed = service.send(None, f"{PREFIX}/models", "GET").message
    assert set(listed) == {"object", "data"}
    assert listed["data"][0]["object"] == "model"
    assert listed["data"][0]["context_window"] == 1_000_000


@pytest.mark.parametrize("name", ["b3os/scripted", "b3os%2Fscripted"])
def test_routes_get_v1_infer_models_id(service: Service, name: str) -> None:
    assert service.send(None, f"{PREFIX}/models/{name}", "GET").message["object"] == "model"
    other = service.send(None, f"{PREFIX}/models/other", "GET")
    assert other.refusal() == (404, "model_not_available", "not_found_error", "model")


def test_routes_get_v1_infer_v1_models_in_anthropic_s_shape(service: Service) -> None:
    listed = service.send(None, f"{PREFIX}/v1/models?limit=1", "GET").message
    assert set(listed) == {"data", "has_more", "first_id", "last_id"}
    assert listed["data"][0]["type"] == "model"
    assert listed["data"][0]["max_input_tokens"] == listed["data"][0]["max_tokens"] == 999_999


@pytest.mark.parametrize("name", ["b3os/scripted", "b3os%2Fscripted"])
def test_routes_get_v1_infer_v1_models_id(service: Service, name: str) -> None:
    assert service.send(None, f"{PREFIX}/v1/models/{name}", "GET").message["type"] == "model"
    other = service.send(None, f"{PREFIX}/v1/models/other", "GET")
    assert other.refusal() == (404, "model_not_available", "not_found_error", "model")


def test_routes_head_v1_infer_is_for_anybody(service: Service) -> None:
    answer = service.send(None, PREFIX, "HEAD", key="")
    assert (answer.status, answer.raw) == (200, b"")


def test_routes_post_v1_keys_and_its_list_and_its_end(person: Person, service: Service) -> None:
    made = person.send("POST", "/v1/keys", {"name": "n", "project": "default"})
    assert made.status == 201
    assert service.send(b"{}", key=made.body["key"]).status == 400
    assert person.send("DELETE", f"/v1/keys/{made.body['id']}").message["status"] == "revoked"
    assert service.send(b"{}", key=made.body["key"]).status == 401


def test_routes_get_v1_keys_shows_four_characters_of_each(person: Person) -> None:
    made = person.send("POST", "/v1/keys", {"name": "n", "project": "default"}).body
    listed = person.send("GET", "/v1/keys")
    hints = {each["id"]: each["hint"] for each in listed.message["data"]}
    assert hints[made["id"]] == made["key"][8:12]
    assert made["key"][8:13] not in listed.raw.decode()


def test_routes_delete_v1_keys_id_may_come_twice(person: Person) -> None:
    made = person.send("POST", "/v1/keys", {"name": "n", "project": "default"}).body
    for _ in range(2):
        assert person.send("DELETE", f"/v1/keys/{made['id']}").message["status"] == "revoked"


def test_routes_get_v1_requests_is_a_page(person: Person) -> None:
    page = person.send("GET", "/v1/requests?limit=1").message
    assert set(page) == {"data", "next_cursor"}


def test_routes_get_v1_requests_id_has_the_id_of_the_answer(person: Person) -> None:
    asked = person.send("POST", MESSAGES, person.service.body())
    assert asked.status == 200
    request_id = asked.headers["request-id"]
    assert person.send("GET", f"/v1/requests/{request_id}").message["id"] == request_id


@pytest.mark.parametrize("by", ["day", "key", "model"])
def test_routes_get_v1_usage_by_what_is_asked(person: Person, by: str) -> None:
    told = person.send("GET", f"/v1/usage?by={by}").message
    assert set(told) == {"by", "from", "to", "data", "total"}
    assert told["by"] == by


def test_routes_post_v1_auth_login_gives_a_cookie(service: Service, email: str) -> None:
    assert Person(service, email).log_in()["user"]["email"] == email


def test_routes_post_v1_auth_logout_ends_the_session(person: Person) -> None:
    answer = person.send("POST", "/v1/auth/logout")
    assert (answer.status, answer.raw) == (204, b"")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert person.send("GET", "/v1/auth/session").status == 401


def test_routes_get_v1_auth_session_tells_user_organizations_and_token(person: Person) -> None:
    told = person.send("GET", "/v1/auth/session").message
    assert told["user"]["email"] == person.email
    assert [(each["id"], each["role"]) for each in told["organizations"]] == [("dev", "owner")]
    assert told["csrf_token"] == person.csrf


def test_routes_post_v1_auth_organization_goes_on_elsewhere(person: Person) -> None:
    told = person.take(person.send("POST", "/v1/auth/organization", {"organization": "dev"}))
    assert (told["organization"], told["project"]) == ("dev", "default")


def test_routes_post_v1_auth_password_wants_the_old_one(person: Person) -> None:
    body = {"current_password": "wrong", "new_password": "a new and longer one"}
    assert person.send("POST", "/v1/auth/password", body).problem() == (401, "unauthorized", None)


def test_routes_post_v1_auth_device_code_token_and_decision(service: Service, person: Person) -> None:
    codes = service.send(b"{}", "/v1/auth/device/code", key="").message
    body = {"user_code": codes["user_code"], "decision": "approve"}
    assert person.send("POST", "/v1/auth/device/decision", body).status == 204
    grant = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": codes["device_code"]}
    token = service.send(json.dumps(grant).encode(), "/v1/auth/device/token", key="").message["access_token"]
    assert token.startswith("b3os_pat_")
    told = service.send(None, "/v1/auth/session", "GET", key=token).message
    assert (told["user"]["email"], told["organization"], told["project"]) == (person.email, "dev", "default")


def test_routes_post_v1_auth_device_token_knows_no_other_grant(service: Service) -> None:
    answer = service.send(b'{"grant_type":"password","device_code":"x"}', "/v1/auth/device/token", key="")
    assert answer.problem() == (400, "invalid_request", "grant_type")


def test_routes_post_v1_auth_device_decision_about_nobody_is_a_404(person: Person) -> None:
    body = {"user_code": "BBBB-BBBB", "decision": "deny"}
    assert person.send("POST", "/v1/auth/device/decision", body).problem() == (404, "not_found", "user_code")


def test_routes_get_v1_auth_device_shows_who_waits(service: Service, person: Person) -> None:
    codes = service.send(b'{"client":"x"}', "/v1/auth/device/code", key="").message
    assert person.send("GET", f"/v1/auth/device?user_code={codes['user_code']}").message["client"] == "x"


def test_routes_get_device_is_where_the_code_is_typed(service: Service) -> None:
    page = service.send(None, "/device", "GET", key="")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    other = service.send(None, "/device", "GET", key="", Host="api.example.com")
    assert other.problem() == (404, "not_found", None)


def test_routes_get_v1_openapi_yaml_and_json_need_no_key(service: Service) -> None:
    as_yaml = service.send(None, "/v1/openapi.yaml", "GET", key="")
    as_json = service.send(None, "/v1/openapi.json", "GET", key="")
    assert as_json.message["openapi"].startswith("3.1")
    assert yaml.safe_load(as_yaml.raw) == as_json.message
