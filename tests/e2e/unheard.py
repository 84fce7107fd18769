"""A service that had no answer of Redis within its second: the machine stood still, and nothing is wrong.

Decides which refusals say so, and how often a test's client asks again, as an SDK does. Must not know who asks.
"""

from __future__ import annotations

import asyncio
import http.client
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import aiohttp

from tests.e2e.stack import ROOT

SENTENCES = (
    "API keys and sessions can't be checked right now",
    "the store does not answer right now",
    "limits can't be checked at the moment",
)
_COMMANDS_SENTENCE = "does not answer as expected; B3OS_REDIS_URL says where it is"
TIMES = 20
AGAIN_AFTER_S = 1.0
"""What `Retry-After` says with each of them."""
T = TypeVar("T")


def is_unheard(status: int, body: bytes) -> bool:
    """Whether an answer is such a refusal."""
    return status == 503 and any(sentence.encode() in body for sentence in SENTENCES)


def heard(ask: Callable[[], T], is_one: Callable[[T], bool]) -> T:
    """The first answer that is none of them; the last one if all are."""
    answer = ask()
    for _ in range(TIMES):
        if not is_one(answer):
            break
        time.sleep(AGAIN_AFTER_S)
        answer = ask()
    return answer


def open_url(request: urllib.request.Request) -> http.client.HTTPResponse:
    """As `urlopen`, with patience."""

    def ask() -> http.client.HTTPResponse | None:
        try:
            answer: http.client.HTTPResponse = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            if not is_unheard(error.code, error.read()):
                raise
            return None
        return answer

    answer = heard(ask, lambda answer: answer is None)
    assert answer is not None, "Redis never had a second for it"
    return answer


def run_b3os(*words: str, environment: Mapping[str, str], text: str = "") -> str:
    """What a command printed. Where it says that Redis did not answer, that may have done it all the same."""
    tries = 0

    def run() -> subprocess.CompletedProcess[str]:
        nonlocal tries
        tries += 1
        command = [sys.executable, "-m", "shared.cli", *words]
        return subprocess.run(
            command, env=environment, input=text, cwd=ROOT, capture_output=True, text=True, check=False
        )

    done = heard(run, lambda done: _COMMANDS_SENTENCE in done.stderr)
    was_done_before = tries > 1 and done.stderr.endswith(" already\n")
    assert not done.returncode or was_done_before, done.stderr
    return done.stdout


async def says_unheard(answer: aiohttp.ClientResponse) -> bool:
    """The same for an answer of which no more than the head was read."""
    return answer.status == 503 and is_unheard(answer.status, await answer.read())


async def heard_later(ask: Callable[[], Awaitable[T]], is_one: Callable[[T], Awaitable[bool]]) -> T:
    """`heard` for whoever has a loop."""
    answer = await ask()
    for _ in range(TIMES):
        if not await is_one(answer):
            break
        await asyncio.sleep(AGAIN_AFTER_S)
        answer = await ask()
    return answer
