"""The routes around the messages, asked by the official SDK."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import aiohttp
import anthropic
import pytest
from anthropic import Anthropic
from yarl import URL

from tests.clients.recorder import Recorder
from tests.e2e.stack import DevStack
from tests.e2e.unheard import heard_later, open_url, says_unheard


@pytest.fixture
def client(dev_scripted: DevStack) -> Iterator[Anthropic]:
    own: dict[str, Any] = {"base_url": dev_scripted.base_url, "auth_token": dev_scripted.api_key}
    with Anthropic(**own, max_retries=0, middleware=[Recorder()]) as client:
        yield client


def test_models_are_listed_and_found_by_an_id_with_a_slash(client: Anthropic) -> None:
    page = client.models.list(limit=5)
    assert [(model.id, model.type) for model in page.data] == [("b3os/scripted", "model")]
    assert (page.has_more, page.first_id, page.last_id) == (False, "b3os/scripted", "b3os/scripted")
    model = client.models.retrieve("b3os/scripted")
    assert model.display_name == "Scripted pieces"
    assert model.max_input_tokens == model.max_tokens == 999_999
    assert list(client.models.list(after_id="b3os/scripted").data) == []


def test_an_unknown_model_is_a_404_and_a_bad_page_a_400(client: Anthropic) -> None:
    for name in ("b3os/other", "other", "a/b/c"):
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve(name)
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.models.list(limit=0)
    assert "limit" in str(caught.value)


async def test_a_path_that_climbs_reaches_nothing(dev_scripted: DevStack) -> None:
    headers = {"Authorization": f"Bearer {dev_scripted.api_key}"}
    async with aiohttp.ClientSession() as session:
        for path in (
            "..",
            "../../../readyz",
            "..%2F..%2Freadyz",
            "%2E%2E/readyz",
            "b3os%2Fscripted/../x",
            "%00",
            "%0d%0a",
        ):
            url = URL(f"{dev_scripted.base_url}/models/{path}", encoded=True)
            asked = partial(session.get, url, headers=headers)
            async with await heard_later(asked, says_unheard) as response:
                assert (path, response.status) == (path, 404)


def test_the_openai_list_tells_the_window(dev_scripted: DevStack) -> None:
    headers = {"Authorization": f"Bearer {dev_scripted.api_key}"}
    for path in ("models", "models/b3os%2Fscripted", "models/b3os/scripted"):
        request = urllib.request.Request(f"{dev_scripted.base_url}/{path}", headers=headers)
        with open_url(request) as response:
            body = json.load(response)
        entry = body["data"][0] if path == "models" else body
        assert (entry["id"], entry["object"], entry["context_window"]) == ("b3os/scripted", "model", 1_000_000)


def test_counting_and_answering_agree(client: Anthropic) -> None:
    messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "one two three"}]
    counted = client.messages.count_tokens(model="b3os/scripted", messages=messages, system="four five")
    answered = client.messages.create(model="b3os/scripted", messages=messages, system="four five", max_tokens=5)
    assert counted.input_tokens == answered.usage.input_tokens == 5


def test_the_alias_answers_like_the_route_itself(dev_scripted: DevStack) -> None:
    body = {"model": "b3os/scripted", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    request = urllib.request.Request(
        f"{dev_scripted.base_url}/messages?beta=true",
        data=json.dumps(body | {"metadata": {"user_id": "u"}}).encode(),
        headers={"x-api-key": dev_scripted.api_key, "Content-Type": "application/json"},
    )
    with open_url(request) as response:
        assert json.load(response)["type"] == "message"
        assert response.headers["x-b3os-ignored"] == "metadata"


def test_anybody_may_ask_whether_somebody_is_there(dev_scripted: DevStack) -> None:
    with open_url(urllib.request.Request(dev_scripted.base_url, method="HEAD")) as response:
        assert response.status == 200
        assert response.headers["request-id"]


def test_a_refusal_tells_what_was_ignored_too(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(
            model="b3os/other",
            max_tokens=5,
            messages=[{"role": "user", "content": "Hi"}],
            metadata={"user_id": "u"},
        )
    assert caught.value.response.headers["x-b3os-ignored"] == "metadata"


def test_a_thread_is_refused_so_that_tool_runners_send_everything_again(client: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(
            model="b3os/scripted",
            max_tokens=5,
            messages=[{"role": "user", "content": "Hi"}],
            extra_body={"thread": {"type": "create"}},
        )
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["error"]["details"]["error_code"] == "thread_unsupported_request"
