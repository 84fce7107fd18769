"""The catalogue of refusals and the three bodies they are told in.

Decides which status, code and types belong to a condition. Must not know who raises it, nor on which route: the
stage that answers picks the body, so the raiser never formats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that can go wrong. One `code` may belong to two conditions with different statuses."""

    status: int
    code: str
    anthropic_type: str
    openai_type: str

    @property
    def is_final(self) -> bool:
        """Whether the same request can never succeed, which SDKs learn from `x-should-retry: false`."""
        is_waiting = self.code in ("authorization_pending", "slow_down")  # RFC 8628 §3.5: the client asks again
        return 400 <= self.status < 500 and self.status not in (408, 409, 429) and not is_waiting


INVALID_REQUEST = Condition(400, "invalid_request", "invalid_request_error", "invalid_request_error")
UNSUPPORTED_PARAMETER = Condition(400, "unsupported_parameter", "invalid_request_error", "invalid_request_error")
IMAGE_KIND = Condition(400, "unsupported_media_type", "invalid_request_error", "invalid_request_error")
PROMPT_TOO_LONG = Condition(400, "context_length_exceeded", "invalid_request_error", "invalid_request_error")
AUTHORIZATION_PENDING = Condition(400, "authorization_pending", "invalid_request_error", "invalid_request_error")
SLOW_DOWN = Condition(400, "slow_down", "invalid_request_error", "invalid_request_error")
ACCESS_DENIED = Condition(400, "access_denied", "invalid_request_error", "invalid_request_error")
EXPIRED_TOKEN = Condition(400, "expired_token", "invalid_request_error", "invalid_request_error")
UNAUTHORIZED = Condition(401, "unauthorized", "authentication_error", "authentication_error")
FORBIDDEN = Condition(403, "forbidden", "permission_error", "permission_error")
EGRESS_DENIED = Condition(403, "egress_denied", "permission_error", "permission_error")
MODEL_NOT_AVAILABLE = Condition(404, "model_not_available", "not_found_error", "invalid_request_error")
ROUTE_NOT_FOUND = Condition(404, "not_found", "not_found_error", "invalid_request_error")
NO_SUCH_RECORD = Condition(404, "not_found", "not_found_error", "invalid_request_error")
METHOD_NOT_ALLOWED = Condition(405, "method_not_allowed", "invalid_request_error", "invalid_request_error")
REQUEST_TIMEOUT = Condition(408, "request_timeout", "timeout_error", "invalid_request_error")
TOKEN_REUSED = Condition(409, "token_reused", "invalid_request_error", "invalid_request_error")
BODY_TOO_LARGE = Condition(413, "payload_too_large", "request_too_large", "invalid_request_error")
NOT_JSON = Condition(415, "unsupported_media_type", "invalid_request_error", "invalid_request_error")
SPEND_CAP_REACHED = Condition(402, "spend_cap_reached", "billing_error", "invalid_request_error")
CONCURRENCY_LIMITED = Condition(429, "concurrency_limited", "rate_limit_error", "rate_limit_error")
RATE_LIMITED = Condition(429, "rate_limited", "rate_limit_error", "rate_limit_error")
INTERNAL = Condition(500, "internal", "api_error", "server_error")
BACKEND_UNAVAILABLE = Condition(503, "infer_backend_unavailable", "overloaded_error", "server_error")
NODE_UNAVAILABLE = Condition(503, "node_unavailable", "overloaded_error", "server_error")


@dataclass(slots=True)
class ApiError(Exception):
    """A refusal on its way to the caller.

    Attributes:
        condition: the entry of the catalogue.
        message: one sentence for the reader of the error; no address, path, repr or secret.
        param: the dotted path of the field at fault (`messages.3.content.0.type`), if there is one.
        details: what goes under `error.details` of the Anthropic body, for the clients that act on it.
        retry_after_s: whole seconds for `Retry-After`, at least 1.
        headers: further response headers.
    """

    condition: Condition
    message: str
    param: str | None = None
    details: dict[str, Any] | None = None
    retry_after_s: int | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.condition.code}: {self.message}"

    def response_headers(self) -> dict[str, str]:
        """The headers that belong to this refusal: `Retry-After`, `x-should-retry` and its own."""
        headers = dict(self.headers)
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(max(1, self.retry_after_s))
        if self.condition.is_final:
            headers["x-should-retry"] = "false"
        return headers


def retry_in(seconds: int) -> str:
    """The words for when to come back, as they stand in messages."""
    return f"retry in {seconds} second{'' if seconds == 1 else 's'}"


LONGEST_MESSAGE = 600
LONGEST_PARAM = 200
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def safe_text(text: str, longest: int) -> str:
    """What a caller sent, fit to be told back: bounded, and without characters that move a terminal's text."""
    return _UNSAFE.sub("\ufffd", text if len(text) <= longest else text[: longest - 1] + "…")


def internal_error(request_id: str) -> ApiError:
    """The only thing that a caller learns of a fault of ours; its cause goes to the log."""
    return ApiError(INTERNAL, f"internal error (request {request_id})")


def anthropic_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """The body of the node's refusals, and of the `error` event of a stream (seed, "Responses")."""
    message = safe_text(error.message, LONGEST_MESSAGE)
    inner: dict[str, Any] = {"type": error.condition.anthropic_type, "message": message}
    if error.details is not None:
        inner["details"] = error.details
    extension = {"code": error.condition.code}
    if error.param is not None:
        extension["param"] = safe_text(error.param, LONGEST_PARAM)
    return {"type": "error", "error": inner, "request_id": request_id, "b3os": extension}


def openai_body(error: ApiError) -> dict[str, Any]:
    """The body of what the edge refuses under `/v1/infer` before a node sees the request (seed, "Responses")."""
    return {
        "error": {
            "message": safe_text(error.message, LONGEST_MESSAGE),
            "type": error.condition.openai_type,
            "param": None if error.param is None else safe_text(error.param, LONGEST_PARAM),
            "code": error.condition.code,
        }
    }


def problem_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """The `application/problem+json` body of every route outside `/v1/infer` (RFC 9457)."""
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": error.condition.code.replace("_", " ").capitalize(),
        "status": error.condition.status,
        "detail": safe_text(error.message, LONGEST_MESSAGE),
        "instance": request_id,
        "code": error.condition.code,
    }
    if error.param is not None:
        problem["param"] = safe_text(error.param, LONGEST_PARAM)
    return problem
