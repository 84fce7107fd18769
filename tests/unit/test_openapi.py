"""docs/openapi.yaml: it is valid, so are its examples, and its routes and codes are those of the code."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, cast

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from openapi_spec_validator import validate as validate_spec

from edge.api.auth import AuthRoutes
from edge.api.device import DeviceRoutes
from edge.api.gate import Gate
from edge.api.keys import KeyRoutes
from edge.api.requests import RequestRoutes
from edge.api.usage import UsageRoutes
from edge.app import build_edge_app
from edge.identity import IdentityParts
from edge.openapi import load_documents
from edge.pages.served import PATHS as PAGES
from edge.proxy import Proxy
from shared import errors
from shared.errors import TOKEN_REUSED, Condition
from tests.openapi import FILE, Spec, list_operations, load, resolve, validate_stream, validator_at

ROOT = FILE.parents[1]


class NoProxy:
    """Has a handler for every route, which nobody calls."""

    def handler(self, scope: str, node_path: str | None = None, **options: Any) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            raise NotImplementedError(scope, node_path, options, request)

        return handle


def build_nobody() -> IdentityParts:
    """The routes of identity, which nobody asks either."""
    nothing = cast("Any", None)
    keys = KeyRoutes(nothing, nothing, nothing, nothing)
    auth = AuthRoutes(*[nothing] * 8, trusted_proxies=0)
    device = DeviceRoutes(*[nothing] * 9, trusted_proxies=0)
    requests, usage = RequestRoutes(nothing, nothing), UsageRoutes(nothing, nothing, nothing)
    gate = Gate(nothing, nothing, per_minute=1, burst=1, trusted_proxies=0)
    return IdentityParts(nothing, nothing, keys, auth, device, requests, usage, nothing, nothing, nothing, gate)


def list_contents(value: Any, pointer: str = "") -> Iterator[tuple[str, Spec]]:
    """Every media type, parameter and header that has a schema, with the pointer of that."""
    if isinstance(value, dict):
        if "schema" in value and ("example" in value or "examples" in value):
            yield f"{pointer}/schema", value
        for name, inner in value.items():
            if name not in ("schemas", "example", "examples"):
                yield from list_contents(inner, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from list_contents(inner, f"{pointer}/{index}")


def test_the_file_is_valid_openapi() -> None:
    validate_spec(load())


def test_every_example_is_what_its_schema_says() -> None:
    checked = 0
    for pointer, content in list_contents(load()):
        examples = [resolve(named)["value"] for named in content.get("examples", {}).values()]
        examples += [content["example"]] if "example" in content else []
        for example in examples:
            checked += 1
            if pointer.endswith("/text~1event-stream/schema"):
                validate_stream(example.encode(), may_fail=True)
            else:
                validator_at(pointer).validate(example)
    assert checked > 30


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in list_operations()])
def test_every_body_has_an_example(method: str, path: str) -> None:
    operation = load()["paths"][path][method.lower()]
    answers = (resolve(answer) for answer in operation["responses"].values())
    contents = [content for answer in answers for content in answer.get("content", {}).items()]
    contents += operation.get("requestBody", {}).get("content", {}).items()
    assert not [
        kind for kind, content in contents if not {"example", "examples"} & set(content) and "$ref" in str(content)
    ]


def test_every_route_is_in_the_file_and_every_operation_is_routed() -> None:
    app = build_edge_app(cast("Proxy", NoProxy()), build_nobody())
    routed = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
    pages = {("GET", path) for path in PAGES}  # for browsers, and no API
    assert routed == {(method, path) for method, path, _ in list_operations()} | pages


def test_routes_that_take_a_path_take_what_the_file_gives_them() -> None:
    for _, path, operation in list_operations():
        named = {resolve(each)["name"] for each in operation.get("parameters", ()) if resolve(each)["in"] == "path"}
        assert named == ({"id"} if path.endswith("{id}") else set())


def list_codes() -> Iterator[tuple[int, str, str, str]]:
    """Status, code, shape and type of every refusal in the file."""
    for name, response in load()["components"]["responses"].items():
        (status,) = _statuses_of(name) or {response["x-b3os-status"]}  # the latter where it is no operation's answer
        for content in response.get("content", {}).values():
            schema = content["schema"]
            for branch in schema.get("oneOf", [schema]):
                for code, shape, kind in _codes_of(*branch["allOf"]) if "allOf" in branch else ():
                    yield status, code, shape, kind


def _statuses_of(name: str) -> set[int]:
    reference = {"$ref": f"#/components/responses/{name}"}
    answers = (answer for _, _, operation in list_operations() for answer in operation["responses"].items())
    return {int(status) for status, answer in answers if answer == reference}


def _codes_of(base: Spec, refined: Spec) -> Iterator[tuple[str, str, str]]:
    shape, properties = base["$ref"].rpartition("/")[2], refined["properties"]
    kind = properties["error"]["properties"]["type"]["const"] if "error" in properties else ""
    holder = {"AnthropicError": "b3os", "OpenAIError": "error"}.get(shape)
    codes = properties if holder is None else properties[holder]["properties"]
    for code in codes["code"]["enum"]:
        yield code, shape, kind


def test_the_codes_are_those_of_the_catalogue() -> None:
    catalogue = [value for value in vars(errors).values() if isinstance(value, Condition) and value != TOKEN_REUSED]
    told = set(list_codes())
    assert {(status, code) for status, code, _, _ in told} == {(one.status, one.code) for one in catalogue}
    possible = {(one.status, one.code, "AnthropicError", one.anthropic_type) for one in catalogue}
    possible |= {(one.status, one.code, "OpenAIError", one.openai_type) for one in catalogue}
    possible |= {(one.status, one.code, "Problem", "") for one in catalogue}
    assert told <= possible


def test_a_refusal_is_final_in_the_file_if_it_is_in_the_catalogue() -> None:
    final = {(one.status, one.is_final) for one in vars(errors).values() if isinstance(one, Condition)}
    for _, _, operation in list_operations():
        for status, answer in operation["responses"].items():
            if (int(status), True) in final or (int(status), False) in final:
                headers = resolve(answer)["headers"]
                assert ("x-should-retry" in headers) == ((int(status), True) in final), (status, answer)


def test_the_version_is_the_package_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert load()["info"]["version"] == project["project"]["version"]
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {
        "docs/openapi.yaml": "edge/openapi.yaml"
    }


def test_the_json_form_says_the_same() -> None:
    served = load_documents()["/v1/openapi.json"].body
    assert orjson.loads(served) == load()


async def test_a_client_that_holds_the_file_is_told_so() -> None:
    document = load_documents()["/v1/openapi.yaml"]
    assert document.body == FILE.read_bytes()
    for held, status in (
        ("*", 304),
        (f'"{document.etag}"', 304),
        (f'"other", W/"{document.etag}"', 304),
        ('"other"', 200),
        ("nonsense", 200),
    ):
        answer = await document.serve(make_mocked_request("GET", "/", headers={"If-None-Match": held}))
        assert (held, answer.status) == (held, status)
        assert answer.headers["ETag"] == f'"{document.etag}"'
        assert answer.headers["Cache-Control"] == "public, max-age=300"
        assert bool(answer.body) == (status == 200)
