"""aiohttp's server, made to keep the contract where no application code runs yet: bytes that are not HTTP.

Decides what a client hears of a request that can't be read, and what the log may hold of it: never its bytes, which
can be a key or a prompt. It overrides parts of aiohttp that are not public; `tests/integration/test_http_server.py`
says so when they change.
"""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from shared.errors import INVALID_REQUEST, ApiError, internal_error
from shared.web import Render, RequestContext, stamp

MAX_PIPELINED = 8
"""Requests that may wait on a connection. At 32 aiohttp stops reading, and no longer sees that a client has left."""
_log = logging.getLogger("b3os.http")


class ContractHandler(RequestHandler):
    """One connection."""

    __slots__ = ()

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
        context = RequestContext()
        error = ApiError(INVALID_REQUEST, "the request is not valid HTTP/1.1")
        response = self._manager.render(
            error if status < 500 else internal_error(context.request_id), context.request_id
        )
        stamp(response, context)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """The kind of fault only: the text of aiohttp's exceptions holds what the client sent."""
        fault = kw.get("exc_info")
        _log.warning(str(args[0]) % args[1:], extra={"facts": {"cause": type(fault).__name__}})

    def data_received(self, data: bytes) -> None:
        """Tell a handler that reads a body at once when the rest of it can't be read."""
        super().data_received(data)
        if not self._messages:
            return
        if len(self._messages) > MAX_PIPELINED:
            self.force_close()
        elif isinstance(self._messages[-1][0], _ErrInfo) and self._current_request is not None:
            body = self._current_request.content
            if not body.is_eof():
                body.set_exception(web.RequestPayloadError("the body can't be read"))


class ContractServer(web.Server):
    """Makes a handler for each connection."""

    def __init__(self, server: web.Server, render: Render) -> None:
        """Take over what an application made, and answer in the shape that `render` gives."""
        super().__init__(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
            loop=server._loop,  # noqa: SLF001
            **server._kwargs,  # noqa: SLF001
        )
        self.render = render

    def __call__(self) -> ContractHandler:
        """One connection's handler."""
        return ContractHandler(self, loop=self._loop, **self._kwargs)


class ContractRunner(web.AppRunner):
    """Runs an application behind `ContractServer`."""

    def __init__(self, app: web.Application, render: Render, **kwargs: Any) -> None:
        """`kwargs` as aiohttp's. Bodies come as they were sent: a small one could unpack into one that stalls us."""
        super().__init__(app, access_log=None, handler_cancellation=True, auto_decompress=False, **kwargs)
        self._render = render

    async def _make_server(self) -> web.Server:
        return ContractServer(await super()._make_server(), self._render)
