"""Counts what an SDK sends: each attempt, the retries too."""

from __future__ import annotations

from typing import Any

from anthropic import APIRequest, APIResponse, AsyncAPIResponse, AsyncCallNext, CallNext, Middleware


class Recorder(Middleware):
    """A middleware of the SDK's, which runs once for each HTTP request."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[Any] = []

    def handle(self, request: APIRequest, call_next: CallNext) -> APIResponse[Any]:
        self.bodies.append(request.json)
        response = call_next(request)
        self.statuses.append(response.status_code)
        return response

    async def handle_async(self, request: APIRequest, call_next: AsyncCallNext) -> AsyncAPIResponse[Any]:
        self.bodies.append(request.json)
        response = await call_next(request)
        self.statuses.append(response.status_code)
        return response
