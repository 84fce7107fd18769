"""What a body takes of memory while it comes, however it is cut."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from shared.errors import BODY_TOO_LARGE, ApiError
from shared.web import read_body

WHOLE = bytes(range(250)) * 400


class Pieces:
    """A body that comes in pieces, one in each turn of the loop."""

    def __init__(self, piece_bytes: int) -> None:
        self._pieces = (WHOLE[at : at + piece_bytes] for at in range(0, len(WHOLE), piece_bytes))

    async def readany(self) -> bytes:
        await asyncio.sleep(0)
        return next(self._pieces, b"")


async def read_in(piece_bytes: int, limit_bytes: int = len(WHOLE), account: Any = lambda size_bytes: None) -> bytes:
    payload: Any = Pieces(piece_bytes)
    request = make_mocked_request("POST", "/", payload=payload)
    return await read_body(request, limit_bytes, lambda _: ApiError(BODY_TOO_LARGE, "too large"), account)


@pytest.mark.parametrize("piece_bytes", [2, 777, 16_384, len(WHOLE)])
async def test_a_body_is_the_same_however_it_is_cut(piece_bytes: int) -> None:
    counted: list[int] = []
    assert await read_in(piece_bytes, account=counted.append) == WHOLE
    assert sum(counted) == len(WHOLE)
    with pytest.raises(ApiError, match="too large"):
        await read_in(piece_bytes, len(WHOLE) - 1)


async def measure_peak_bytes(piece_bytes: int) -> int:
    tracemalloc.start()
    try:
        await read_in(piece_bytes)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_many_small_pieces_take_no_more_than_a_few_large_ones() -> None:
    """The budget of an edge counts bytes, so that they have to be what is held."""
    assert await measure_peak_bytes(2) < 1.5 * await measure_peak_bytes(len(WHOLE) // 4)
