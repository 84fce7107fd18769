"""The table of docs/errors.md.

Rows that need a broken service of their own are tested elsewhere; `test_complete.py` says where.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from edge.auth.credentials import mint_credential
from shared.http_server import MAX_TARGET_BYTES
from tests.contract.bodies import USER, image, picture, remote_image
from tests.contract.service import MESSAGES, PREFIX, Service
from tests.e2e.test_refusals import new_key

INVALID = "invalid_request_error"
SOURCE = "messages.0.content.0.source.type"


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"a":NaN}', b"{}{}", b"[" * 600_000]
)
def test_errors_400_invalid_request_for_what_is_no_json_object(service: Service, raw: bytes) -> None:
    answer = service.send(raw)
    assert answer.refusal()[:3] == (400, "invalid_request", INVALID)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [USER, USER, USER, {"role": "user", "content": [{"text": "x"}]}]}, "messages.3.content.0.type"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [USER, 3]}, "messages.1"),
        ({"tools": [{"name": "a", "input_schema": {}}, 3]}, "tools.1"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1}}, "thinking.budget_tokens"),
        ({"metadata": {"user_id": 3}}, "metadata.user_id"),
        ({"output_config": {"effort": "most"}}, "output_config.effort"),
        ({"stop_sequences": ["a", 3]}, "stop_sequences.1"),
    ],
)
def test_errors_400_invalid_request_tells_the_dotted_path(service: Service, fields: Any, param: str) -> None:
    answer = service.ask(**fields)
    assert answer.refusal() == (400, "invalid_request", INVALID, param)
    assert answer.words.startswith(f"{param}: ")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [image() | {"x": 1}]}]}, "messages.0.content.0.x"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "text"}}]}]}, SOURCE),
    ],
)
def test_errors_400_unsupported_parameter(service: Service, fields: Any, param: str) -> None:
    assert service.ask(**fields).refusal() == (400, "unsupported_parameter", INVALID, param)


@pytest.mark.parametrize(
    ("block", "field"),
    [
        (image(picture("BMP")), "data"),
        (image(base64.b64encode(b"<svg/>").decode()), "data"),
        (image(media_type="image/tiff"), "media_type"),
    ],
)
def test_errors_400_unsupported_media_type_for_other_images(service: Service, block: Any, field: str) -> None:
    answer = service.ask(messages=[{"role": "user", "content": [block]}])
    assert answer.refusal() == (400, "unsupported_media_type", INVALID, f"messages.0.content.0.source.{field}")


@pytest.mark.parametrize("data", ["", "!", "iVBORw0KGgo", "iVBORw0KGgoAAAANSUhEUg=="])
def test_errors_400_invalid_request_for_an_image_that_is_damaged(service: Service, data: str) -> None:
    answer = service.ask(messages=[{"role": "user", "content": [image(data)]}])
    assert answer.refusal()[0] == 400
    assert answer.refusal()[3] == "messages.0.content.0.source.data"


@pytest.mark.parametrize("url", ["http://a.example/x.png", "https://a.example:x/", "https:///x.png", "https://a b"])
def test_errors_400_invalid_request_for_a_url_that_is_none(service: Service, url: str) -> None:
    answer = service.ask(messages=[{"role": "user", "content": [remote_image(url)]}])
    assert answer.refusal() == (400, "invalid_request", INVALID, "messages.0.content.0.source.url")
    assert "Could not process image" in answer.words


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1/x.png", "https://[::1]/", "https://u@a.example/", "https://redis/"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_403_egress_denied_is_told_by_the_path_of_the_url(service: Service, url: str, stream: bool) -> None:
    answer = service.ask(messages=[{"role": "user", "content": [image(), remote_image(url)]}], stream=stream)
    assert answer.refusal() == (403, "egress_denied", "permission_error", "messages.0.content.1.source.url")
    assert "Could not process image" in answer.words


def test_errors_400_context_length_exceeded_tells_both_counts(service: Service) -> None:
    answer = service.ask("x " * 1_000_000)
    assert answer.refusal() == (400, "context_length_exceeded", INVALID, None)
    assert answer.words == "prompt is too long: 1000000 tokens > 999999 maximum"


def test_errors_401_unauthorized_says_which_fault_of_form_and_no_other(service: Service) -> None:
    key = service.stack.api_key
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    keys = {"none": "", "checksum": wrong, "malformed": "sk-x", "unknown": mint_credential().token}
    answers = {name: service.send(b"{}", key=used) for name, used in keys.items()}
    for answer in answers.values():
        assert answer.edge_refusal() == (401, "unauthorized", "authentication_error")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert "checksum" in answers["checksum"].words
    assert "malformed" in answers["malformed"].words
    assert answers["unknown"].words == "the API key is not valid"


def test_errors_403_forbidden_names_the_scope(service: Service) -> None:
    key = new_key(service.stack, "--scope=models:read")["key"]
    answer = service.send(b"{}", key=key)
    assert answer.edge_refusal() == (403, "forbidden", "permission_error")
    assert "infer:run" in answer.words
    assert service.send(None, f"{PREFIX}/models", "GET", key=key).status == 200


def test_errors_404_model_not_available_has_the_param_model(service: Service) -> None:
    answer = service.ask(model="claude-opus-5-5")
    assert answer.refusal() == (404, "model_not_available", "not_found_error", "model")


@pytest.mark.parametrize("path", [f"{MESSAGES}/batches", f"{PREFIX}/v1/files", f"{PREFIX}/chat/completions"])
def test_errors_404_not_found_has_the_edge_s_shape(service: Service, path: str) -> None:
    assert service.send(None, path, "GET").edge_refusal()[:2] == (404, "not_found")


def test_errors_405_method_not_allowed_tells_which_are(service: Service) -> None:
    answer = service.send(None, MESSAGES, "GET")
    assert answer.edge_refusal()[:2] == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def test_errors_413_payload_too_large_is_the_node_s_and_beyond_it_the_edge_s(service: Service) -> None:
    answer = service.send(b" " * 10_485_761)
    assert answer.refusal() == (413, "payload_too_large", "request_too_large", None)
    assert "10485761" in answer.words
    assert "10485760" in answer.words
    other = Service(service.stack)
    assert other.send(b" " * 33_554_433).edge_refusal() == (413, "payload_too_large", INVALID)
    other.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_errors_415_unsupported_media_type_for_what_is_not_sent_as_json(service: Service, kind: str) -> None:
    answer = service.send(b"{}", Content_Type=kind)
    assert answer.refusal() == (415, "unsupported_media_type", INVALID, None)
    assert "application/json" in answer.words


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_errors_415_unsupported_media_type_not_for_json_in_other_words(service: Service, kind: str) -> None:
    assert service.send(b"{}", Content_Type=kind).refusal()[3] == "model"


@pytest.mark.parametrize("stream", [False, True])
def test_errors_500_internal_names_the_request_and_nothing_else(service: Service, stream: bool) -> None:
    answer = service.ask([["crash"]], stream=stream)
    assert answer.refusal() == (500, "internal", "api_error", None)
    assert answer.words == f"internal error (request {answer.headers['request-id']})"


@pytest.mark.parametrize("stream", [False, True])
def test_errors_503_infer_backend_unavailable_tells_when_to_come_back(service: Service, stream: bool) -> None:
    answer = service.ask([["fail"]], stream=stream)
    assert answer.refusal() == (503, "infer_backend_unavailable", "overloaded_error", None)
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize("path", ["/", "/v1/nowhere", "/v1/inferno", "/metrics", "/readyz"])
def test_errors_404_not_found_elsewhere_is_a_problem(service: Service, path: str) -> None:
    answer = service.send(None, path, "GET")
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "instance", "code"} == set(answer.body)
    assert answer.body["instance"] == answer.headers["request-id"]
    assert (answer.status, answer.body["status"], answer.body["code"]) == (404, 404, "not_found")


@pytest.mark.parametrize(("path", "shape"), [("/v1/requests", "problem+json"), ("/v1/infer/models", "json")])
def test_errors_400_invalid_request_of_a_long_query_has_the_shape_of_its_route(
    service: Service, path: str, shape: str
) -> None:
    answer = service.send(None, f"{path}?model={'x' * MAX_TARGET_BYTES}", "GET")
    assert (answer.status, answer.headers["content-type"].split(";")[0]) == (400, f"application/{shape}")
