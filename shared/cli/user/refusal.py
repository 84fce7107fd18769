"""What a server says when it refuses.

Decides how the three bodies of `shared/errors.py`, and those of strangers in between, become one sentence and one
exit code. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.cli.user.document import NotJson, dig, parse_json, text_at
from shared.cli.user.failure import FAILED, NOT_LOGGED_IN, TRY_LATER, Failure
from shared.cli.user.text import one_line

_LONGEST_ID = 100
_LATER_STATUSES = (429, 502, 503, 504, 529)
_LATER_TYPES = ("overloaded_error", "rate_limit_error")


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal. `kind` is Anthropic's or OpenAI's type, `code` ours or that of OAuth; both may be empty."""

    status: int
    message: str
    code: str = ""
    kind: str = ""
    request_id: str = ""
    retry_after_s: int | None = None

    @property
    def exit_code(self) -> int:
        """What the command ends with."""
        if self.status == 401 or self.kind == "authentication_error":
            return NOT_LOGGED_IN
        is_for_now = self.status in _LATER_STATUSES or self.kind in _LATER_TYPES
        return TRY_LATER if is_for_now else FAILED

    def as_failure(self) -> Failure:
        """The sentence, with the id to ask about."""
        words = one_line(self.message)
        if self.exit_code == NOT_LOGGED_IN:
            words += "; log in with `b3os login`, or set B3OS_API_KEY"
        if self.retry_after_s is not None:
            words += f"; try again in {self.retry_after_s} s"
        if self.request_id and self.request_id not in words:
            words += f" ({one_line(self.request_id, _LONGEST_ID)})"
        return Failure(words, self.exit_code)


def parse_refusal(status: int, headers: Mapping[str, str], raw: bytes) -> Refusal:
    """Read an answer that is no success."""
    try:
        body = parse_json(raw)
    except NotJson:
        body = None
    id_of_head = headers.get("request-id") or headers.get("x-request-id") or ""
    retry_after = headers.get("retry-after", "")
    return Refusal(
        status=status,
        message=_message_of(body) or _describe_status(status, headers),
        code=_code_of(body),
        kind=text_at(body, "error", "type"),
        request_id=id_of_head or text_at(body, "request_id") or text_at(body, "instance"),
        retry_after_s=int(retry_after) if retry_after.isdecimal() and len(retry_after) < 7 else None,
    )


def parse_error_event(data: object, request_id: str) -> Refusal:
    """Read the `error` event of a stream, whose head said 200."""
    return Refusal(
        status=200,
        message=_message_of(data) or "the answer ended with an error",
        code=_code_of(data),
        kind=text_at(data, "error", "type"),
        request_id=text_at(data, "request_id") or request_id,
    )


def _message_of(body: object) -> str:
    """Anthropic's and OpenAI's; a problem's (RFC 9457); OAuth's (RFC 6749, 5.2)."""
    return (
        text_at(body, "error", "message")
        or text_at(body, "detail")
        or text_at(body, "error_description")
        or text_at(body, "title")
        or text_at(body, "error")
    )


def _code_of(body: object) -> str:
    oauth = dig(body, "error")
    return (
        text_at(body, "b3os", "code")
        or text_at(body, "error", "code")
        or (oauth if isinstance(oauth, str) else text_at(body, "code"))
    )


def _describe_status(status: int, headers: Mapping[str, str]) -> str:
    if 300 <= status < 400:
        return f"the server redirects to {headers.get('location', 'somewhere')}; is the base URL right?"
    if status == 404:
        return "the server has no such route; is the base URL right, and the server new enough?"
    return f"the server answers with status {status} and no reason"
