"""Answers end the same way however they are cut into pieces."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from node.images.answer import AnswerReader, Image, Redirect
from node.images.url import Target
from node.images.verdict import EgressRefused, Verdict
from tests.integration.egress.behaviours import BEHAVIOURS, LARGEST, Gone

TARGET = Target("ok.lab.example", 443, "/")
# After the end of an image nothing is waited for, so only what comes with it is seen.
DEPEND_ON_PIECES = {"/long", "/two-answers", "/second-later"}
WITHOUT_END = {
    "/eof-cut",
    "/length-cut",
    "/silent",
    "/stall",
    "/rst",
    "/slow-head",
    "/slow-body",
    "/slow-headers",
    "/1xx-slow",
}
PATHS = sorted(path for path in BEHAVIOURS if path not in DEPEND_ON_PIECES | WITHOUT_END)


class Recorder:
    """Stands where the lab has a connection, and keeps the first bytes of it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.transport = self

    def is_closing(self) -> bool:
        return len(self.data) > 100_000

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass


async def bytes_of(path: str) -> bytes:
    recorder = Recorder()
    with suppress(Gone):
        await BEHAVIOURS[path](recorder, "%2Fok.png")  # type: ignore[arg-type]
    return bytes(recorder.data)


def end_of(data: bytes, size: int) -> Image | Redirect | Verdict | None:
    reader = AnswerReader(TARGET, LARGEST)
    try:
        for start in range(0, len(data), size):
            if (outcome := reader.feed(data[start : start + size])) is not None:
                return outcome
        return reader.feed(b"")
    except EgressRefused as refused:
        return refused.verdict


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_ends_the_same_in_any_pieces(path: str) -> None:
    data = await asyncio.wait_for(bytes_of(path), 10)
    whole = end_of(data, 16_384)
    assert whole is not None
    for size in (1, 7, 99, 4096) if len(data) < 20_000 else (997, 4096):
        assert end_of(data, size) == whole
