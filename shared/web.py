"""What every HTTP answer of ours has in common: ids, timing, the shape of errors, one log line, a bounded body.

Decides the headers on every answer and that no fault leaves without a body of the contract. Must not know any route.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import orjson
from aiohttp import web

from shared.errors import (
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NOT_JSON,
    REQUEST_TIMEOUT,
    ROUTE_NOT_FOUND,
    ApiError,
    anthropic_body,
    internal_error,
    openai_body,
    problem_body,
)
from shared.ids import new_request_id
from shared.log import request_id_var
from shared.pace import UploadPace
from shared.timing import Phases

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Render = Callable[[ApiError, str], web.Response]
_log = logging.getLogger("b3os.request")


@dataclass(slots=True)
class RequestContext:
    """What a request carries from its head to its log line.

    Attributes:
        upstream_timing: the `Server-Timing` of the node that answered, for the edge to append its own phases to.
        facts: further fields of the log line; never prompts, answers, keys or addresses of callers.
        headers: further headers of the answer, whatever it will be.
        has_begun: whether a head was written, after which no other answer can be given.
    """

    request_id: str = field(default_factory=new_request_id)
    phases: Phases = field(default_factory=Phases)
    upstream_timing: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    has_begun: bool = False


CONTEXT: web.RequestKey[RequestContext] = web.RequestKey("context", RequestContext)
EXPECTS_CONTINUE: web.RequestKey[bool] = web.RequestKey("expects_continue", bool)
"""The client waits for a 100 before it sends the body: `read_body` says it, once credentials and length are good."""


@dataclass(slots=True)
class Stopping:
    """Whether this process is about to end: connections are closed after their answers, so that callers move on."""

    is_on: bool = False


STOPPING: web.AppKey[Stopping] = web.AppKey("stopping", Stopping)


def json_response(
    body: object, *, status: int = 200, headers: dict[str, str] | None = None, content_type: str = "application/json"
) -> web.Response:
    """A JSON body of known size."""
    return web.Response(body=orjson.dumps(body), status=status, headers=headers, content_type=content_type)


def render_anthropic(error: ApiError, request_id: str) -> web.Response:
    """A refusal in the node's shape."""
    body = anthropic_body(error, request_id)
    return json_response(body, status=error.condition.status, headers=error.response_headers())


def render_openai(error: ApiError, request_id: str) -> web.Response:
    """A refusal in the edge's shape under `/v1/infer`."""
    del request_id  # this shape tells it in the headers only
    return json_response(openai_body(error), status=error.condition.status, headers=error.response_headers())


def render_problem(error: ApiError, request_id: str) -> web.Response:
    """A refusal in the shape of every other route."""
    return json_response(
        problem_body(error, request_id),
        status=error.condition.status,
        headers=error.response_headers(),
        content_type="application/problem+json",
    )


ChooseRender = Callable[[web.BaseRequest], Render]
CHOOSE_RENDER: web.AppKey[ChooseRender] = web.AppKey("choose_render")
"""In which shape an application refuses a request."""


def build_app(choose_render: ChooseRender, *, log_level: int = logging.INFO) -> web.Application:
    """An application whose every answer, errors included, keeps the contract's promises on headers and shape."""
    app = web.Application(middlewares=[_observe(choose_render, log_level)])
    app[CHOOSE_RENDER] = choose_render
    app.on_response_prepare.append(_add_headers)
    app[STOPPING] = Stopping()
    return app


def _observe(
    choose_render: Callable[[web.Request], Render], log_level: int
) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        context = request[CONTEXT] = RequestContext()
        request_id_var.set(context.request_id)
        status = 499  # the caller left before there was an answer
        try:
            try:
                response = await handler(request)
            except (ConnectionError, TimeoutError):
                raise
            except Exception as error:
                refusal = _refusal_of(request, error, context.request_id)
                try:
                    context.facts["code"] = refusal.condition.code
                    if context.has_begun:  # a second head would land in the body of the first
                        raise ConnectionResetError("an answer was begun already") from error
                    response = choose_render(request)(refusal, context.request_id)
                finally:
                    del refusal  # which would lead back to itself through this frame, and keep the whole request
            status = response.status
            return response
        finally:
            _log.log(log_level, "request", extra={"facts": _facts(request, context, status)})

    return observe


def _refusal_of(request: web.Request, error: Exception, request_id: str) -> ApiError:
    """What the caller hears of it; a fault of ours goes to the log."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, web.HTTPException):
        return _framework_error(request, error)
    _log.exception("unhandled", exc_info=error)
    return internal_error(request_id)


def _framework_error(request: web.Request, error: web.HTTPException) -> ApiError:
    """The catalogue's word for what aiohttp itself refuses."""
    if error.status == 404:
        return ApiError(ROUTE_NOT_FOUND, f"{request.method} {request.path} is not a route of this service")
    if error.status == 405:
        allowed = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return ApiError(METHOD_NOT_ALLOWED, f"{request.method} is not allowed on {request.path}", headers=allowed)
    return ApiError(INVALID_REQUEST, "the request could not be read")


def _facts(request: web.Request, context: RequestContext, status: int) -> dict[str, object]:
    return {
        "method": request.method,
        "path": request.path,
        "status": status,
        "total_ms": round(context.phases.elapsed_ms(), 2),
        "phases_ms": {name: round(value, 2) for name, value in context.phases.durations_ms.items()},
        **context.facts,
    }


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Runs right before the head is written, for whole bodies and streams alike."""
    context = request.get(CONTEXT) or RequestContext()
    context.has_begun = True
    stamp(response, context)
    if request.app[STOPPING].is_on:
        response.force_close()
        response.headers["Connection"] = "close"  # aiohttp has chosen this header before it asks us


def stamp(response: web.StreamResponse, context: RequestContext) -> None:
    """Set the headers that every answer has."""
    response.headers["x-request-id"] = context.request_id
    response.headers["request-id"] = context.request_id
    response.headers.update(context.headers)
    response.headers["Server"] = "b3os"  # aiohttp's own tells the versions of Python and of itself
    has_known_size = isinstance(response, web.Response)
    response.headers["Server-Timing"] = context.phases.header(
        upstream=context.upstream_timing, with_total=has_known_size
    )


async def read_body(
    request: web.Request,
    limit_bytes: int,
    too_large: Callable[[int | None], ApiError],
    account: Callable[[int], None] = lambda size_bytes: None,
) -> bytes:
    """Read the body, and no more of it than the limit.

    Args:
        too_large: makes the refusal from the size that the head announced, or None where it announced none.
        account: is told the size of each piece that came, and may refuse it.

    Raises:
        ApiError: the body is compressed, too large, broken, or slower than `UploadPace` allows.
    """
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError(NOT_JSON, "send the body without a Content-Encoding")
    announced = request.content_length
    if announced is not None and announced > limit_bytes:
        raise too_large(announced)
    if request.get(EXPECTS_CONTINUE):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    body = bytearray()  # and no list of pieces: one of two bytes takes fifty as an object
    clock = asyncio.get_running_loop().time
    pace = UploadPace(clock())
    try:
        async with asyncio.timeout_at(pace.due_at_s) as deadline:
            while chunk := await request.content.readany():
                if len(body) + len(chunk) > limit_bytes:
                    raise too_large(None)
                account(len(chunk))
                body += chunk
                pace.count(len(chunk), clock())
                deadline.reschedule(pace.due_at_s)
    except TimeoutError:
        raise ApiError(REQUEST_TIMEOUT, "the request body did not arrive in time") from None
    except (web.RequestPayloadError, ValueError):
        raise ApiError(INVALID_REQUEST, "the request body is broken") from None
    return bytes(body)
