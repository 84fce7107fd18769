"""A running service keeps docs/openapi.yaml, whatever it is sent.

Schemathesis makes requests from the file, good and bad, and holds every answer to it. The same requests come each
time, so that a red run means a change; `FUZZ_EXAMPLES=500` asks for that many new ones of each kind.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from typing import Any, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from edge.auth.scopes import SCOPES
from tests.e2e.coherent import make_coherent
from tests.e2e.stack import DevStack
from tests.e2e.test_refusals import new_key
from tests.e2e.unheard import heard, is_unheard
from tests.openapi import (
    FILE,
    METHODS,
    Spec,
    drop_null_unknowns,
    list_operations,
    load,
    load_closed,
    resolve,
    validate,
    validate_stream,
    validator_at,
)

MODEL = "b3os/scripted"
MESSAGES, ALIAS, COUNT = "/v1/infer/v1/messages", "/v1/infer/messages", "/v1/infer/v1/messages/count_tokens"
BODIES = {
    MESSAGES: "MessagesRequest",
    COUNT: "CountTokensRequest",
    "/v1/keys": "NewKey",
    "/v1/auth/login": "Login",
    "/v1/auth/device/code": "DeviceCodeRequest",
}
FUZZ = int(os.environ.get("FUZZ_EXAMPLES", "0"))
QUIET = settings(
    deadline=None,
    database=None,
    derandomize=not FUZZ,
    phases=[Phase.explicit, Phase.generate] if not FUZZ else list(Phase),
    suppress_health_check=list(HealthCheck),
)


def build_spec() -> Spec:
    """The file, strictly read, with the only model and project that are here: others are refused and tell little."""
    spec = copy.deepcopy(load_closed())
    spec["components"]["schemas"]["MessagesRequest"]["properties"]["model"] = {"const": MODEL}
    spec["components"]["schemas"]["NewKey"]["properties"]["project"] = {"const": "default"}
    for example in spec["components"]["examples"].values():
        example["value"]["model"] = MODEL
    return spec


def build_config() -> SchemathesisConfig:
    """All values at and beyond each bound for one of the routes that read messages, and some at random for all."""
    return SchemathesisConfig.from_dict(
        {
            "generation": {
                "deterministic": not FUZZ,
                "database": "none",
                "max-examples": FUZZ or 20,
                "with-security-parameters": False,  # the key has tests of its own
            },
            "operations": [{"include-path": COUNT, "phases": {"coverage": {"enabled": False}}}],
        }
    )


API = schemathesis.openapi.from_dict(build_spec(), config=build_config())


def only_valid_bodies_are_accepted(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """What was answered was a request that the file allows; null is no value of a field that it doesn't know."""
    del ctx
    is_json = case.media_type == "application/json"  # an empty field of a form is none (RFC 6749 §3.1)
    if response.status_code in (200, 201) and isinstance(case.body, dict) and is_json:
        pointer = f"/components/schemas/{BODIES[case.path]}"
        validator_at(pointer).validate(drop_null_unknowns(case.body, pointer))


def streams_are_streams_of_the_file(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """Each event has its schema, and they come in their order."""
    del ctx, case
    if response.headers.get("content-type") == ["text/event-stream"]:
        validate_stream(response.content)


CONFORMANCE = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    streams_are_streams_of_the_file,
]


class PatientSession(requests.Session):
    """Asks again where Redis had no second for it. What is read here, Schemathesis does not see any more."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        return heard(
            lambda: super(PatientSession, self).send(request, **options),
            lambda answer: answer.status_code == 503 and is_unheard(503, answer.content),
        )


@pytest.fixture(scope="module")
def session(dev_scripted: DevStack) -> Iterator[requests.Session]:
    """One connection, with a key that may do everything."""
    key = new_key(dev_scripted, *(f"--scope={scope}" for scope in SCOPES))["key"]
    with PatientSession() as session:
        session.headers["Authorization"] = f"Bearer {key}"
        yield session


@API.exclude(path=ALIAS).parametrize()  # the same handler; it has its share below
@QUIET
def test_whatever_is_sent_the_answer_is_one_of_the_file(
    case: Case[Any], dev_scripted: DevStack, session: requests.Session
) -> None:
    rejection = [only_valid_bodies_are_accepted] if case.method == "POST" else [negative_data_rejection]
    case.call_and_validate(
        base_url=dev_scripted.edge_url, session=session, checks=[*CONFORMANCE, *rejection, unsupported_method]
    )


@pytest.mark.parametrize("path", [MESSAGES, ALIAS, COUNT])
def test_a_request_that_keeps_all_rules_is_answered(
    path: str, dev_scripted: DevStack, session: requests.Session
) -> None:
    @settings(QUIET, max_examples=FUZZ or {MESSAGES: 60, ALIAS: 5, COUNT: 15}[path])
    @given(case=API[path]["POST"].as_strategy(generation_mode=GenerationMode.POSITIVE), hurry=st.booleans())
    def answer(case: Case[Any], hurry: bool) -> None:
        body = case.body = make_coherent(cast("Spec", case.body))
        if hurry:
            body["stream"] = True
        validator_at(f"/components/schemas/{'CountTokensRequest' if path == COUNT else 'MessagesRequest'}").validate(
            case.body
        )
        response = case.call_and_validate(base_url=dev_scripted.edge_url, session=session, checks=CONFORMANCE)
        assert response.status_code == 200, (response.content, body)
        streamed = response.headers["content-type"] == ["text/event-stream"]
        assert streamed == (bool(body.get("stream")) and path != COUNT)

    answer()


SCRIPTS: dict[str, list[list[Any]]] = {
    "text": [["text", "Hel"], ["text", "lo"]],
    "nothing": [],
    "thinking": [["thinking", "Hm"], ["text", "Yes"]],
    "calls": [
        ["text", "I look."],
        ["tool", "get_weather", {"city": "Oslo"}],
        ["tool", "get_weather", {"city": "Rome"}],
    ],
    "cut call": [["cut", "get_weather", '{"ci']],
    "late failure": [["text", "Hel"], ["fail"]],
    "late fault": [["text", "Hel"], ["crash"]],
}


def ask(steps: list[list[Any]], **fields: Any) -> Spec:
    """A request that has the scripted engine play these steps."""
    weather = {"type": "object", "properties": {"city": {"type": "string"}}}
    script = json.dumps({"scripted": steps})
    tools = [{"name": "get_weather", "input_schema": weather}]
    return {
        "model": MODEL,
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": script}],
        "tools": tools,
        "thinking": {"type": "adaptive"},
        **fields,
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_streams_are_what_the_file_says(name: str, dev_scripted: DevStack, session: requests.Session) -> None:
    answer = session.post(f"{dev_scripted.edge_url}{MESSAGES}", json=ask(SCRIPTS[name], stream=True))
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "text/event-stream")
    events = validate_stream(answer.content, may_fail=name.startswith("late"))
    assert events[-1]["type"] == ("error" if name.startswith("late") else "message_stop")


@pytest.mark.parametrize("name", SCRIPTS)
def test_whole_answers_are_what_the_file_says(name: str, dev_scripted: DevStack, session: requests.Session) -> None:
    case = API[MESSAGES]["POST"].Case(body=ask(SCRIPTS[name]), media_type="application/json")
    answer = case.call_and_validate(base_url=dev_scripted.edge_url, session=session, checks=[*CONFORMANCE[1:]])
    assert answer.status_code == {"late failure": 503, "late fault": 500}.get(name, 200)


REFUSALS: dict[str, tuple[int, str, Any, dict[str, str]]] = {
    "an unknown field": (400, "unsupported_parameter", ask([], container="x"), {}),
    "a thread": (400, "unsupported_parameter", ask([], thread={}), {}),
    "not JSON": (400, "invalid_request", b"{", {}),
    "a tool of Anthropic's": (400, "unsupported_parameter", ask([], tools=[{"type": "bash_20250124"}]), {}),
    "no key": (401, "unauthorized", ask([]), {"Authorization": ""}),
    "another model": (404, "model_not_available", ask([], model="b3os/other"), {}),
    "a large body": (413, "payload_too_large", b" " * (11 << 20), {}),
    "a huge body": (413, "payload_too_large", b" " * (40 << 20), {}),
    "another type": (415, "unsupported_media_type", b"hello", {"Content-Type": "text/plain"}),
    "a compressed body": (415, "unsupported_media_type", b"hello", {"Content-Encoding": "gzip"}),
    "an early failure": (503, "infer_backend_unavailable", ask([["fail"]], stream=True), {}),
    "an early fault": (500, "internal", ask([["crash"]], stream=True), {}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_are_what_the_file_says(name: str, dev_scripted: DevStack, session: requests.Session) -> None:
    status, code, body, headers = REFUSALS[name]
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = session.post(
        f"{dev_scripted.edge_url}{MESSAGES}", data=raw, headers={"Content-Type": "application/json", **headers}
    )
    assert answer.status_code == status, answer.content
    told = answer.json()
    assert told.get("b3os", told["error"])["code"] == code
    API[MESSAGES]["POST"].Case().validate_response(answer, checks=CONFORMANCE[1:])


def fill(path: str) -> str:
    """The path of something: models have a slash in their ids."""
    return path.replace("{id}", MODEL if path.startswith("/v1/infer/") else "x")


@pytest.mark.parametrize("path", sorted({path for _, path, _ in list_operations()}))
def test_every_other_method_is_refused_as_the_file_says(
    path: str, dev_scripted: DevStack, session: requests.Session
) -> None:
    routed = {method.lower() for method, known, _ in list_operations() if known == path}
    for method in set(METHODS) - routed - {"trace"}:
        answer = session.request(method, dev_scripted.edge_url + fill(path), allow_redirects=False)
        assert (method, answer.status_code) == (method, 405)
        assert answer.headers["Allow"] == ",".join(sorted(name.upper() for name in routed))
        if method != "head" and path.startswith("/v1/infer"):
            validator_at("/components/responses/MethodNotAllowed/content/application~1json/schema").validate(
                answer.json()
            )
        elif method != "head":
            validate(answer.json(), "Problem")


def test_routes_need_a_key_unless_the_file_says_otherwise(dev_scripted: DevStack) -> None:
    for method, path, operation in list_operations():
        answer = requests.request(method, dev_scripted.edge_url + fill(path), timeout=60)
        is_open = operation.get("security") == []
        opened = 415 if method == "POST" else 200  # it wants a body
        assert (path, answer.status_code) == (path, opened if is_open else 401)


def test_what_a_request_leaves_behind_is_what_the_file_says(
    dev_scripted: DevStack, session: requests.Session
) -> None:
    asked = session.post(f"{dev_scripted.edge_url}{MESSAGES}", json=ask(SCRIPTS["thinking"]))
    request_id = asked.headers["request-id"]
    told: dict[str, Any] = {}
    for path, query in (
        ("/v1/requests/{id}", ""),
        ("/v1/requests", "?limit=100"),
        *(("/v1/usage", f"?by={by}") for by in ("day", "key", "model")),
    ):
        answer = session.get(dev_scripted.edge_url + path.replace("{id}", request_id) + query)
        assert answer.status_code == 200, answer.content
        API[path]["GET"].Case(path_parameters={"id": request_id}).validate_response(answer, checks=CONFORMANCE)
        told[path] = answer.json()
    assert told["/v1/requests/{id}"]["id"] == request_id
    assert request_id in [each["id"] for each in told["/v1/requests"]["data"]]


@pytest.mark.parametrize("path", ["/v1/infer/models/{id}", "/v1/infer/v1/models/{id}"])
@pytest.mark.parametrize("name", [MODEL, MODEL.replace("/", "%2F")])
def test_a_model_is_found_with_its_slash_either_way(
    path: str, name: str, dev_scripted: DevStack, session: requests.Session
) -> None:
    answer = session.get(dev_scripted.edge_url + path.replace("{id}", name))
    assert answer.json()["id"] == MODEL
    API[path]["GET"].Case(path_parameters={"id": MODEL}).validate_response(answer, checks=CONFORMANCE)


def test_the_file_itself_is_served_in_both_forms(dev_scripted: DevStack) -> None:
    as_yaml = requests.get(f"{dev_scripted.edge_url}/v1/openapi.yaml", timeout=60)
    assert (as_yaml.content, as_yaml.headers["Content-Type"]) == (FILE.read_bytes(), "application/yaml")
    as_json = requests.get(f"{dev_scripted.edge_url}/v1/openapi.json", timeout=60)
    assert (as_json.json(), as_json.headers["Content-Type"]) == (load(), "application/json")
    held = {"If-None-Match": as_json.headers["ETag"]}
    again = requests.get(f"{dev_scripted.edge_url}/v1/openapi.json", headers=held, timeout=60)
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", held["If-None-Match"])


def test_every_example_of_a_request_is_answered(dev_scripted: DevStack, session: requests.Session) -> None:
    for name, example in API.raw_schema["components"]["examples"].items():
        answer = session.post(f"{dev_scripted.edge_url}{MESSAGES}", json=resolve(example)["value"])
        assert (name, answer.status_code) == (name, 200), answer.content


def list_faults(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Each place of a request with something else in it, the request as a whole included, one at a time."""
    wrong: list[Any] = [{"nonsense": 1}, 7.5, "nonsense", [[]]]
    if isinstance(value, dict):
        yield from (((*path, name), _GONE) for name in value)
        yield (*path, "nonsense"), 1
    if path:
        yield from ((path, other) for other in wrong)
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from list_faults(inner, (*path, step))


_GONE = object()


def put(body: Spec, path: tuple[str | int, ...], value: Any) -> Spec:
    """The request with something else in one place."""
    changed = copy.deepcopy(body)
    holder: Any = changed
    for step in path[:-1]:
        holder = holder[step]
    if value is _GONE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


@pytest.mark.parametrize("name", load()["components"]["examples"])
def test_one_fault_in_a_good_request_is_refused_by_its_path(
    name: str, dev_scripted: DevStack, session: requests.Session
) -> None:
    good = API.raw_schema["components"]["examples"][name]["value"]
    validator = validator_at("/components/schemas/MessagesRequest")
    refused = 0
    for path, value in list_faults(good):
        body = put(good, path, value)
        if path == ("model",) or validator.is_valid(body):
            continue
        answer = session.post(f"{dev_scripted.edge_url}{MESSAGES}", json=body)
        dotted = ".".join(map(str, path))
        assert (dotted, value, answer.status_code) == (dotted, value, 400)
        param = answer.json()["b3os"]["param"]
        assert f"{param}.".startswith(f"{dotted}.") or f"{dotted}.".startswith(f"{param}."), (param, dotted, value)
        refused += 1
    assert refused > 20
