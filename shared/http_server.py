"""aiohttp's server, made to keep the contract where no application code runs yet: bytes that are not HTTP.

Decides what a client hears of a request that can't be read, how long a head may be, and what the log may hold of
either: never its bytes, which can be a key or a prompt. It overrides parts of aiohttp that are not public;
`tests/integration/test_http_server.py` says so when they change.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from multidict import CIMultiDict, CIMultiDictProxy

from shared.errors import INVALID_REQUEST, ApiError, internal_error
from shared.web import CHOOSE_RENDER, EXPECTS_CONTINUE, ChooseRender, Render, RequestContext, stamp

MAX_PIPELINED = 8
"""Requests that may wait on a connection. At 32 aiohttp stops reading, and no longer sees that a client has left."""
MAX_TAIL_BYTES = 4096
"""Bytes that may follow a request for an upgrade, which is never granted."""
MAX_TARGET_BYTES = 2048
"""Of a path and its query. No route of ours needs a tenth, and routing looks at each part of a path many times."""
MAX_HEAD_BYTES = 32_768
"""Of all headers together: aiohttp bounds each one and their number alone, and many of them are split into parts."""
_Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_log = logging.getLogger("b3os.http")


class ContractHandler(RequestHandler):
    """One connection."""

    __slots__ = ("_newest_body",)

    def __init__(self, *args: Any, **kw: Any) -> None:
        """As aiohttp's."""
        super().__init__(*args, **kw)
        self._newest_body: StreamReader = EMPTY_PAYLOAD

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer in the shape of this port, and close the connection."""
        self.log_exception("unreadable request", exc_info=exc)
        if request.writer.output_size > 0 or not isinstance(self._manager, ContractServer):
            raise ConnectionError("an answer was begun already")
        error = ApiError(INVALID_REQUEST, "the request is not valid HTTP/1.1")
        return _refuse(self._manager.render, error if status < 500 else None)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """The kind of fault only: the text of aiohttp's exceptions holds what the client sent."""
        fault = kw.get("exc_info")
        text = "unreadable request" if isinstance(fault, web.RequestPayloadError) else str(args[0]) % args[1:]
        _log.warning(text, extra={"facts": {"cause": type(fault).__name__}})

    def data_received(self, data: bytes) -> None:
        """Keep three promises: a body that breaks is refused at once, a client that leaves is noticed, and an upload
        that is under way when the server stops goes on."""
        known = len(self._messages)
        if self._close or self._force_close:
            self._take_the_rest(data)
        else:
            super().data_received(data)
        for message, body in list(self._messages)[known:]:
            if not isinstance(message, _ErrInfo):
                self._newest_body = body
            elif not self._newest_body.is_eof():
                self._newest_body.set_exception(web.RequestPayloadError("the body can't be read"))
        if self._is_deaf():
            self.force_close()

    def _take_the_rest(self, data: bytes) -> None:
        """From its shutdown on aiohttp drops all that comes, the rest of bodies too for which it lets handlers wait.

        What follows the body is not answered any more, whatever it is, nor is a request behind one that runs.
        """
        if self._newest_body.is_eof() or (self._messages and self._current_request is not None):
            return
        closing, closing_by_force = self._close, self._force_close
        self._close = self._force_close = False
        try:
            super().data_received(data)
        finally:
            self._close |= closing
            self._force_close |= closing_by_force

    def _is_deaf(self) -> bool:
        """Whether so much waits behind a running request that aiohttp stops reading, and sees no end of it."""
        waiting, running = len(self._messages), self._current_request is not None
        return (
            waiting > MAX_PIPELINED
            or (running and waiting > 0 and self._reading_paused)
            or len(self._message_tail) > MAX_TAIL_BYTES
        )


class ContractServer(web.Server):
    """Makes a handler for each connection."""

    def __init__(self, server: web.Server, render: Render, choose_render: ChooseRender) -> None:
        """Take over what an application made. `render` is the shape where no request can be read, `choose_render` has
        that of one which can."""
        super().__init__(
            _without_long_heads(server.request_handler, choose_render),
            request_factory=_without_expect(server.request_factory),
            handler_cancellation=server.handler_cancellation,
            loop=server._loop,  # noqa: SLF001
            **server._kwargs,  # noqa: SLF001
        )
        self.render = render

    def __call__(self) -> ContractHandler:
        """One connection's handler."""
        return ContractHandler(self, loop=self._loop, **self._kwargs)


def _refuse(render: Render, error: ApiError | None) -> web.Response:
    """An answer in the shape of this port, behind which the connection is closed; None is a fault of ours."""
    context = RequestContext()
    response = render(error or internal_error(context.request_id), context.request_id)
    stamp(response, context)
    response.force_close()
    return response


def _without_long_heads(handle: _Handle, choose_render: ChooseRender) -> _Handle:
    """All that works on a head takes time by its length, also for a stranger, and holds up everybody meanwhile."""

    async def handle_request(request: web.BaseRequest) -> web.StreamResponse:
        if too_long := _find_too_long(request):
            _log.warning("unreadable request", extra={"facts": {"cause": f"{too_long} too long"}})
            return _refuse(choose_render(request), ApiError(INVALID_REQUEST, f"the request's {too_long} too long"))
        return await handle(request)

    return handle_request


def _find_too_long(request: web.BaseRequest) -> str | None:
    if len(request.raw_path) > MAX_TARGET_BYTES:
        return "path and query are"
    head_bytes = sum(len(name) + len(value) for name, value in request.raw_headers)
    return "headers are" if head_bytes > MAX_HEAD_BYTES else None


def _without_expect(make: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """aiohttp answers `Expect` before any code of ours, even where there is no route: only `read_body` shall."""

    def make_request(message: RawRequestMessage, *args: Any) -> web.BaseRequest:
        if "Expect" not in message.headers:
            return make(message, *args)
        headers = CIMultiDict(message.headers)
        expected = [value.lower() for value in headers.popall("Expect")]
        request = make(message._replace(headers=CIMultiDictProxy(headers)), *args)
        request[EXPECTS_CONTINUE] = "100-continue" in expected and message.version >= HttpVersion11
        return request

    return make_request


class ContractRunner(web.AppRunner):
    """Runs an application behind `ContractServer`."""

    def __init__(self, app: web.Application, render: Render, **kwargs: Any) -> None:
        """`kwargs` as aiohttp's. Bodies come as they were sent: a small one could unpack into one that stalls us."""
        super().__init__(app, access_log=None, handler_cancellation=True, auto_decompress=False, **kwargs)
        self._render = render

    async def _make_server(self) -> web.Server:
        choose_render = self.app.get(CHOOSE_RENDER, lambda request: self._render)
        return ContractServer(await super()._make_server(), self._render, choose_render)
