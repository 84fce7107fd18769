"""Counts what an SDK sends: each attempt, the retries too.

Where Redis had no second for one, it is sent again here, and counts once.
"""

from __future__ import annotations

from typing import Any

from anthropic import APIRequest, APIResponse, AsyncAPIResponse, AsyncCallNext, CallNext, Middleware

from tests.e2e.unheard import heard, heard_later, is_unheard


class Recorder(Middleware):
    """A middleware of the SDK's, which runs once for each HTTP request."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[Any] = []

    def handle(self, request: APIRequest, call_next: CallNext) -> APIResponse[Any]:
        self.bodies.append(request.json)
        response = heard(
            lambda: call_next(request),
            lambda answer: answer.status_code == 503 and is_unheard(answer.status_code, answer.read()),
        )
        self.statuses.append(response.status_code)
        return response

    async def handle_async(self, request: APIRequest, call_next: AsyncCallNext) -> AsyncAPIResponse[Any]:
        self.bodies.append(request.json)
        response = await heard_later(lambda: call_next(request), _says_unheard)
        self.statuses.append(response.status_code)
        return response


async def _says_unheard(answer: AsyncAPIResponse[Any]) -> bool:
    return answer.status_code == 503 and is_unheard(answer.status_code, await answer.read())
