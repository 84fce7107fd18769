"""That pixels and requests are gone when an answer is, whatever became of it, and what they may take meanwhile.

Python's search for rings of garbage is off: the node has it done seldom, and a caller could have memory piled up.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from PIL import Image

from node.images.decode import MAX_SIDE, BadImage, NotAnImage
from node.images.decoder import ImageDecoder
from node.images.fetch import EgressGuard
from node.images.intake import PIXEL_BYTES, ImageIntake
from node.images.pixels import NotBase64
from node.images.verdict import EgressRefused, Verdict
from node.settings import EgressSection
from node.shares import Shares
from node.wire.parse import parse_request
from node.wire.request import MessagesRequest
from shared.errors import BACKEND_UNAVAILABLE, PROMPT_TOO_LONG, ApiError, Condition
from tests.hostile_images import PNG, flat, saved
from tests.unmetered import Unmetered

SIDE = 100
HELD = PIXEL_BYTES * SIDE * SIDE
GOOD = saved(Image.new("RGB", (SIDE, SIDE), "red"), "PNG")
DAMAGED = PNG + b"nothing of the kind"
Block = dict[str, Any]


def sent(file: bytes) -> Block:
    data = base64.b64encode(file).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def remote(name: str) -> Block:
    return {"type": "image", "source": {"type": "url", "url": f"https://images.example/{name}"}}


def request_of(*blocks: Block) -> MessagesRequest:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": list(blocks)}]}
    return parse_request(json.dumps(body).encode())


class Server:
    """In the place of the network: says by the name of a file what becomes of its fetch."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.leave = asyncio.Event()

    async def deliver(self, url: str, *_: Any) -> bytes:
        self.asked.append(url)
        if "slow" in url:
            await self.leave.wait()
        if "late" in url:
            try:
                async with asyncio.timeout(0.05):
                    await asyncio.sleep(60)
            except TimeoutError:
                raise EgressRefused(Verdict.TOO_SLOW, url=url) from None
        if "bad" in url:
            await asyncio.sleep(0.05)
            refused = EgressRefused(Verdict.BAD_STATUS, url=url)
            ring = [refused]
            raise ring[0]
        return DAMAGED if "damaged" in url else GOOD


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def intake(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ImageIntake]:
    guard = EgressGuard(EgressSection.model_validate({}))
    monkeypatch.setattr(guard, "_deliver", server.deliver)
    decoder = ImageDecoder()
    await decoder.start()
    yield ImageIntake(guard, decoder)
    await decoder.close()


async def take(
    intake: ImageIntake, request: MessagesRequest, payer: str = "one", then: Condition | None = None
) -> int | str:
    """As a handler does: how many images came, or what the caller is told."""
    try:
        async with intake.taken(request, max_side_px=SIDE, meter=Unmetered(payer)) as images:
            if then is not None:
                raise ApiError(then, "afterwards")
            return len(images)
    except ApiError as error:
        return f"{error.condition.status} {error.param or error.message}"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def alive() -> int:
    """Images and requests. By their types: some things of other libraries tell another class when they are asked."""
    return sum(issubclass(type(thing), Image.Image | MessagesRequest) for thing in gc.get_objects())


PATH = "messages.0.content"
GOOD_URLS = [remote(f"{number}") for number in range(6)]
ENDS: dict[str, tuple[list[Block], int | str]] = {
    "good": ([*[sent(GOOD)] * 6, *GOOD_URLS], 12),
    "a sent one is damaged": ([*[sent(GOOD)] * 5, sent(DAMAGED)], f"400 {PATH}.5.source.data"),
    "a sent one is no base64": ([*[sent(GOOD)] * 5, sent(GOOD) | {"cut": True}], f"400 {PATH}.5.source.data"),
    "a sent one is no image": ([*[sent(GOOD)] * 5, sent(b"text" * 5)], f"400 {PATH}.5.source.data"),
    "a fetched one is damaged": ([*[sent(GOOD)] * 3, *GOOD_URLS, remote("damaged")], f"400 {PATH}.9.source.url"),
    "a fetch fails": ([*[sent(GOOD)] * 3, *GOOD_URLS, remote("bad")], f"400 {PATH}.9.source.url"),
    "a fetch is late": ([*[sent(GOOD)] * 3, *GOOD_URLS, remote("late")], f"400 {PATH}.9.source.url"),
}


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def cut(blocks: list[Block]) -> list[Block]:
    """With the last characters of the one that is marked gone."""
    for block in blocks:
        if block.pop("cut", False):
            block["source"] = {**block["source"], "data": block["source"]["data"][:-3]}
    return blocks


async def leaves_nothing(work: Callable[[], Awaitable[int | str]]) -> int | str:
    """What comes of the work, of which no image and no request is left."""
    gc.collect()
    before = alive()
    told = await work()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):  # a thread may still be about to let go of what it copied
            while alive() > before:
                await asyncio.sleep(0.01)
    assert alive() <= before
    assert not exceptions_in_rings()
    return told


def exceptions_in_rings() -> list[object]:
    """Each keeps the frames that it passed; all that is in these can't be counted, files in base64 for instance."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        kinds = (ApiError, BadImage, NotAnImage, NotBase64, TimeoutError)
        return [thing for thing in gc.garbage if issubclass(type(thing), kinds)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("name", ENDS)
async def test_nothing_is_left_of_a_request_however_it_ends(
    intake: ImageIntake, no_collector: None, name: str
) -> None:
    blocks, expected = ENDS[name]

    async def work() -> int | str:
        return await asyncio.create_task(take(intake, request_of(*cut(json.loads(json.dumps(blocks))))))

    assert await leaves_nothing(work) == expected
    assert (intake.held_bytes, intake.files.held) == (0, 0)


async def test_nothing_is_left_where_the_prompt_is_refused(intake: ImageIntake, no_collector: None) -> None:
    told = await leaves_nothing(lambda: take(intake, request_of(*[sent(GOOD)] * 4), then=PROMPT_TOO_LONG))
    assert told == "400 afterwards"
    assert intake.held_bytes == 0


async def test_nothing_is_left_where_there_is_no_room(intake: ImageIntake, no_collector: None) -> None:
    intake.wait_s = 0.05
    intake.pixels = Shares(9 * HELD, 9 * HELD)
    hold = asyncio.create_task(intake.pixels.acquire("another", 6 * HELD))
    await hold
    told = await leaves_nothing(lambda: take(intake, request_of(*[sent(GOOD)] * 4, *GOOD_URLS[:2])))
    assert told == "503 too many images at the moment; retry shortly"
    assert (intake.held_bytes, intake.files.held) == (6 * HELD, 0)


async def test_nothing_is_left_where_there_is_no_place(
    server: Server, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    guard = EgressGuard(EgressSection.model_validate({"total_s": 0.1}))
    monkeypatch.setattr(guard, "_deliver", server.deliver)
    for who in "a" * 12 + "b" * 4:
        await guard._places.acquire(who)
    decoder = ImageDecoder()
    intake = ImageIntake(guard, decoder)
    told = await leaves_nothing(lambda: take(intake, request_of(sent(GOOD), *GOOD_URLS)))
    assert told == "503 too many images are being fetched; retry shortly"
    assert (intake.held_bytes, intake.files.held) == (0, 0)
    await decoder.close()


@pytest.mark.parametrize("wait_s", [0.0, 0.005, 0.01, 0.02, 0.05, 0.1])
@pytest.mark.parametrize("slow", [False, True])
async def test_nothing_is_left_of_a_client_that_leaves(
    intake: ImageIntake, no_collector: None, wait_s: float, slow: bool
) -> None:
    async def work() -> str:
        blocks = [sent(GOOD)] * 8 + GOOD_URLS + ([remote("slow")] if slow else [])
        task = asyncio.create_task(take(intake, request_of(*blocks)))
        await asyncio.sleep(wait_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.1)  # what a thread copies is copied to its end
        return "left"

    await leaves_nothing(work)
    assert (intake.held_bytes, intake.files.held) == (0, 0)
    assert await take(intake, request_of(sent(GOOD), remote("again"))) == 2


async def test_who_keeps_an_image_keeps_no_pixels(intake: ImageIntake) -> None:
    """A renderer's thread that nobody waits for any more has them, for instance."""
    kept: list[Image.Image] = []
    async with intake.taken(request_of(sent(GOOD)), max_side_px=SIDE, meter=Unmetered()) as images:
        kept += images.values()
        assert kept[0].getpixel((0, 0)) == (255, 0, 0)
        assert intake.held_bytes == HELD
    with pytest.raises(ValueError, match="closed"):
        kept[0].tobytes()


# Whose room it is.


async def test_a_slow_server_keeps_no_pixels_waiting(intake: ImageIntake, server: Server) -> None:
    waiting = asyncio.create_task(take(intake, request_of(*[sent(GOOD)] * 8, remote("quick"), remote("slow"))))
    await until(lambda: len(server.asked) == 2)
    await asyncio.sleep(0.05)
    assert intake.held_bytes == 0
    assert intake.files.held == intake.largest_file_bytes + len(GOOD)
    server.leave.set()
    assert await waiting == 10


async def test_nobody_takes_another_s_room_however_much_he_asks_for(intake: ImageIntake, server: Server) -> None:
    intake.pixels = Shares(8 * HELD, 4 * HELD)
    most = 0

    async def greedy() -> int | str:
        async with intake.taken(request_of(*[sent(GOOD)] * 4), max_side_px=SIDE, meter=Unmetered("greedy")) as images:
            nonlocal most
            most = max(most, intake.held_bytes)
            await server.leave.wait()
            return len(images)

    crowd = [asyncio.create_task(greedy()) for _ in range(5)]
    await until(lambda: most == 4 * HELD)
    for _ in range(20):
        assert await take(intake, request_of(*[sent(GOOD)] * 4), "other") == 4
    assert not any(task.done() for task in crowd)
    server.leave.set()
    assert await asyncio.gather(*crowd) == [4] * 5


async def test_room_that_is_not_needed_is_given_back_at_once(intake: ImageIntake, server: Server) -> None:
    small = saved(Image.new("RGB", (3, 2)), "PNG")
    async with intake.taken(request_of(sent(small)), max_side_px=5000, meter=Unmetered()):
        assert intake.held_bytes == PIXEL_BYTES * 6


async def test_the_largest_request_fits(intake: ImageIntake) -> None:
    largest = flat(MAX_SIDE, MAX_SIDE, 8, 2)
    request = request_of(*[sent(largest)] * 20)
    async with intake.taken(request, max_side_px=5000, meter=Unmetered("one")) as images:
        assert len(images) == 20
        assert intake.held_bytes == 20 * PIXEL_BYTES * MAX_SIDE * MAX_SIDE


async def test_who_waits_for_our_places_is_told_so_and_not_blamed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = EgressGuard(EgressSection.model_validate({"total_s": 0.2}))
    monkeypatch.setattr(guard, "_deliver", server.deliver)
    decoder = ImageDecoder()
    intake = ImageIntake(guard, decoder)
    crowd = [
        asyncio.create_task(take(intake, request_of(*[remote(f"slow{number}{place}") for place in range(4)]), who))
        for number, who in enumerate("aabbb")
    ]
    await until(lambda: len(server.asked) == 16)
    told = await take(intake, request_of(remote("quick")), "c")
    assert told == f"{BACKEND_UNAVAILABLE.status} too many images are being fetched; retry shortly"
    server.leave.set()
    await asyncio.gather(*crowd)
    assert await take(intake, request_of(remote("quick")), "c") == 1
    await decoder.close()


async def test_a_file_that_waits_for_a_decoder_keeps_no_place(
    intake: ImageIntake, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()
    decode = intake.decoder.decode

    async def wait(*arguments: Any) -> Image.Image:
        await release.wait()
        return await decode(*arguments)

    monkeypatch.setattr(intake.decoder, "decode", wait)
    crowd = [
        asyncio.create_task(take(intake, request_of(*[remote(f"{number}{place}") for place in range(4)]), who))
        for number, who in enumerate("aaaabbbb")
    ]
    await until(lambda: len(server.asked) == 32)
    release.set()
    assert await asyncio.gather(*crowd) == [4] * 8


async def test_what_is_no_image_at_first_sight_is_told_before_anything_is_fetched(
    intake: ImageIntake, server: Server
) -> None:
    for bad in ({"data": "!"}, {"data": base64.b64encode(b"some other file").decode()}, {"data": "iVBO"}):
        block = sent(GOOD)
        block["source"] |= bad
        assert await take(intake, request_of(remote("quick"), block)) == f"400 {PATH}.1.source.data"
    assert not server.asked
