"""The whole service as a client sees it, over one plain connection, and what every answer of it must keep.

Decides the promises that hold for each answer, whatever was asked: `send` checks them every time.
"""

from __future__ import annotations

import http.client
import json
import re
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yarl import URL

from shared.ids import REQUEST_ID
from tests.e2e.stack import DevStack
from tests.e2e.unheard import heard, is_unheard
from tests.stream_checker import Event, check_stream, read_frames

PREFIX = "/v1/infer"
MESSAGES = f"{PREFIX}/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
Script = list[Any]
MOSTLY_IDLE_S = 60.0
"""Of the 75 s after which an edge ends a connection that nothing was asked on."""

_STREAM = "text/event-stream"
_LEAKS = re.compile(
    r"Traceback|pydantic|validation errors?\b|input_value|NoneType|<class|object at 0x|site-packages"
    r"|127\.0\.0\.1|/home/\w|/tmp/|/usr/|\.py\b|\{'|\['|b3os_sk_\w{4}"
)
"""What a message of ours may never hold: Python, addresses, paths, keys."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.raw)
        return body

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith(_STREAM)

    @property
    def message(self) -> dict[str, Any]:
        """The body of a 200."""
        assert self.status == 200, self.raw
        return self.body

    @property
    def events(self) -> list[Event]:
        """The events of a stream that reached its end."""
        assert (self.status, self.is_stream) == (200, True), self.raw
        events = read_frames(self.raw)
        check_stream(events)
        return events

    @property
    def phases(self) -> list[str]:
        """The names in `Server-Timing`."""
        entries = self.headers["server-timing"].split(", ")
        assert all(re.fullmatch(r"[a-z_]+;dur=\d+\.\d+", entry) for entry in entries)
        return [entry.partition(";")[0] for entry in entries]

    def refusal(self) -> tuple[int, str, str, str | None]:
        """Status, code, type and param of the node's refusal, whose shape is Anthropic's."""
        body = self.body
        assert set(body) == {"type", "error", "request_id", "b3os"}
        assert body["type"] == "error"
        assert body["request_id"] == self.headers["request-id"]
        assert {"type", "message"} <= set(body["error"]) <= {"type", "message", "details"}
        assert {"code"} <= set(body["b3os"]) <= {"code", "param"}
        return self.status, body["b3os"]["code"], body["error"]["type"], body["b3os"].get("param")

    def edge_refusal(self) -> tuple[int, str, str]:
        """Status, code and type of the edge's refusal, whose shape is OpenAI's."""
        body = self.body
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert body["error"]["param"] is None
        return self.status, body["error"]["code"], body["error"]["type"]

    def problem(self, and_has: str = "param") -> tuple[int, str, str | None]:
        """Status, code and param of a refusal outside `/v1/infer` (RFC 9457)."""
        body = self.body
        assert self.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "detail", "instance", "code"} == set(body) - {"param", and_has}
        assert (body["instance"], body["status"]) == (self.headers["request-id"], self.status)
        return self.status, body["code"], body.get("param")

    @property
    def words(self) -> str:
        """The message of a refusal."""
        words: str = self.body["error"]["message"]
        return words


class Service:
    """A client of a running service."""

    def __init__(self, stack: DevStack) -> None:
        self.stack = stack
        self._connection = http.client.HTTPConnection(URL(stack.edge_url).host or "", URL(stack.edge_url).port)
        self._used_s = 0.0

    def close(self) -> None:
        self._connection.close()

    def body(self, script: Script | str = "Hi", /, **fields: Any) -> dict[str, Any]:
        """A request for the playing of a script."""
        text = script if isinstance(script, str) else json.dumps({"scripted": script})
        return {
            "model": self.stack.model,
            "max_tokens": 100,
            "messages": [{"role": "user", "content": text}],
            **fields,
        }

    def ask(self, script: Script | str = "Hi", /, **fields: Any) -> Answer:
        """A message."""
        return self.post(self.body(script, **fields))

    def refused(self, param: str, code: str = "invalid_request", /, **fields: Any) -> str:
        """Check that a request is refused for one field, and return the words."""
        answer = self.ask(**fields)
        assert answer.refusal() == (400, code, "invalid_request_error", param)
        return answer.words

    def count(self, **fields: Any) -> int:
        """The tokens of a request's prompt."""
        counted: int = self.post(self.body(**fields), COUNT).message["input_tokens"]
        return counted

    def post(self, body: object, path: str = MESSAGES, **headers: str) -> Answer:
        """Send JSON."""
        return self.send(json.dumps(body).encode(), path, **headers)

    def send(
        self, raw: bytes | None, path: str = MESSAGES, method: str = "POST", *, key: str | None = None, **headers: str
    ) -> Answer:
        """Send bytes with our key, or another, or none (an empty one); `_` in names of headers stands for `-`."""
        chosen = {"Authorization": f"Bearer {key or self.stack.api_key}"} if key != "" else {}
        if raw is not None:
            chosen["Content-Type"] = "application/json"
        chosen |= {name.replace("_", "-"): value for name, value in headers.items()}
        encoded = {name: value.encode() for name, value in chosen.items() if value}
        answer = heard(
            lambda: self._exchange(method, path, raw, encoded), lambda answer: is_unheard(answer.status, answer.raw)
        )
        check_promises(answer, is_inference=bool(re.match(rf"{PREFIX}([/?]|$)", path)), sent=raw or b"")
        return answer

    def _exchange(self, method: str, path: str, raw: bytes | None, headers: Mapping[str, bytes]) -> Answer:
        held = self._connection.sock
        if held is not None and select.select([held], [], [], 0)[0]:
            assert time.monotonic() - self._used_s > MOSTLY_IDLE_S, "the edge ended a connection that was in use"
            self._connection.close()
        self._connection.request(method, path, raw, headers)
        self._used_s = time.monotonic()
        response = self._connection.getresponse()
        return Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, response.read())


def check_promises(answer: Answer, *, is_inference: bool, sent: bytes) -> None:
    """What holds for every answer. A name that was sent may be told back, whatever it holds."""
    assert REQUEST_ID.fullmatch(answer.headers["request-id"])
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert answer.headers["server"] == "b3os"
    assert ("total" in answer.phases) != answer.is_stream
    assert answer.phases[-1] == "total" or answer.is_stream
    assert len(set(answer.phases)) == len(answer.phases)
    if answer.status < 400:
        return
    assert not answer.is_stream
    text = answer.words if is_inference else answer.body["detail"]
    assert text
    assert len(text) <= 600
    assert not [found for found in _LEAKS.findall(text) if found.encode() not in sent], text
    is_waiting = not is_inference and answer.body["code"] in ("authorization_pending", "slow_down")
    is_final = 400 <= answer.status < 500 and answer.status not in (408, 429) and not is_waiting
    assert (answer.headers.get("x-should-retry") == "false") == is_final
    if answer.status in (429, 503):
        assert int(answer.headers["retry-after"]) >= 1
