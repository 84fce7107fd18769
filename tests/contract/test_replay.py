"""What real clients sent, through the whole service: "only the base URL and the credential changed"."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.contract.recordings import FOLDER, Recording, load_recordings
from tests.contract.service import COUNT, Answer, Service

Refusal = tuple[int, str, str | None]

REFUSED: dict[str, Refusal] = {
    # A safety check that is asked of the server is never pretended.
    "cc-auto.1": (400, "unsupported_parameter", "safeguards"),
    "cc-auto.2": (400, "unsupported_parameter", "safeguards"),
    # The SDKs' tool runners send everything again.
    "py-tool-runner-stream.1": (400, "unsupported_parameter", "thread"),
    "py-tool-runner-stream.2": (400, "unsupported_parameter", "thread"),
    # An edit that would clear something.
    "lc-ctxmgmt.1": (400, "unsupported_parameter", "context_management.edits.0.type"),
    # Images by URL: `Recording.body_for` makes their host one that is never asked. tests/e2e/egress has them fetched.
    "ai6-image.1": (403, "egress_denied", "messages.0.content.2.source.url"),
    "lc-image.1": (403, "egress_denied", "messages.0.content.2.source.url"),
    # Base64 of a file that is damaged.
    "ll-image.1": (400, "invalid_request", "messages.0.content.1.source.data"),
    # Routes that we don't have.
    "py-batches-cancel.1": (404, "not_found", None),
    "py-batches-list.1": (404, "not_found", None),
    "py-files-list.1": (404, "not_found", None),
    "ts-batches.1": (404, "not_found", None),
}
RECORDINGS = {recording.name: recording for recording in load_recordings()}
ACCEPTED = [recording for name, recording in RECORDINGS.items() if name not in REFUSED]
COUNTED = [recording for recording in ACCEPTED if recording.body is not None and recording.path != COUNT]


def replay(service: Service, recording: Recording, path: str | None = None, **fields: Any) -> Answer:
    """Send it as it was recorded, but for the credential and the model's id."""
    body = recording.body_for(service.stack.model)
    raw = None if body is None else json.dumps({**body, **fields}).encode()
    headers = {"Content-Type": "", **recording.other_headers()}
    key = service.stack.api_key
    credential = recording.credential_header()
    if credential is not None:
        headers[credential] = f"Bearer {key}" if credential == "Authorization" else key
    return service.send(raw, path or recording.target, recording.method, key="", **headers)


def test_there_is_something_to_replay() -> None:
    assert len(RECORDINGS) > 100
    assert set(REFUSED) < set(RECORDINGS)


def test_recordings_hold_no_secret_and_no_place() -> None:
    for file in FOLDER.iterdir():
        text = file.read_text()
        assert not re.search(r"sk-ant|b3os_(sk|pat)_[0-9a-hjkmnp-tv-z]{8}|Bearer (?!<redacted>)", text), file.name
        assert not re.search(r"/(?:root|Users|work|mnt)/|/home/(?!user\b)", text), file.name
        hosts = set(re.findall(r"https?://([^/\s\"]+)", text))
        assert hosts <= {"json-schema.org", "example.com", "127.0.0.1:7791"}, file.name


@pytest.mark.parametrize("recording", ACCEPTED, ids=lambda recording: recording.name)
def test_a_client_is_answered(service: Service, recording: Recording) -> None:
    answer = replay(service, recording)
    assert answer.status == 200, answer.raw
    if recording.body is None:
        assert answer.raw == b""
    elif recording.path == COUNT:
        assert set(answer.message) == {"input_tokens"}
    elif recording.body.get("stream"):
        assert answer.events[0]["message"]["model"] == service.stack.model
    else:
        assert not answer.is_stream
        assert answer.message["content"]


@pytest.mark.parametrize("recording", COUNTED, ids=lambda recording: recording.name)
def test_counting_and_answering_agree_in_either_form(service: Service, recording: Recording) -> None:
    counted = replay(service, recording, COUNT).message["input_tokens"]
    whole = replay(service, recording, stream=False).message
    start = replay(service, recording, stream=True).events[0]["message"]
    assert counted == whole["usage"]["input_tokens"] == start["usage"]["input_tokens"] > 0


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_is_refused_as_the_contract_says(service: Service, name: str) -> None:
    answer = replay(service, RECORDINGS[name])
    status, code, param = REFUSED[name]
    if status == 404:
        assert answer.edge_refusal()[:2] == (status, code)
    else:
        kind = "permission_error" if status == 403 else "invalid_request_error"
        assert answer.refusal() == (status, code, kind, param)


def test_a_tool_runner_is_told_to_send_everything_again(service: Service) -> None:
    details = replay(service, RECORDINGS["py-tool-runner-stream.2"]).body["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
