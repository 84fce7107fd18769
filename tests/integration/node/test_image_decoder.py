"""Image files through the process that decodes: what comes of each, and what it costs the node."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
import uvloop
from PIL import Image

from node.images import decoder as decoder_module
from node.images.decode import MAX_SIDE, BadImage, NotAnImage
from node.images.decode_zygote import LIMITS
from node.images.decoder import ImageDecoder, most_at_once
from node.images.pixels import NotBase64
from shared.errors import BACKEND_UNAVAILABLE, ApiError
from tests.hostile_images import HOSTILE, PNG, RED, RED_SQUARE, Case, filtered_png, flat, saved
from tests.integration.egress.test_limits import Heartbeat

T = TypeVar("T")
ODD = "tests.integration.node.odd_zygote"
MOST_LOOP_S = 0.1
MOST_NODE_BYTES = 64 << 20
"""Three copies of the largest answer: as it came, without its head, and as an image, which has four bytes a pixel."""
RED_PNG = saved(RED_SQUARE, "PNG")


class Bench:
    """A decoder on uvloop, as the node has it."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.decoder = ImageDecoder()
        self.run(self.decoder.start())

    def run(self, work: Awaitable[T]) -> T:
        """To its end."""

        async def wait() -> T:
            return await work

        return self.runner.run(wait())


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A running one."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        bench = Bench(runner)
        yield bench
        bench.run(bench.decoder.close())


class PeakMemory:
    """How much more memory than before this process had at most."""

    def __enter__(self) -> PeakMemory:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is used now
        self._before_bytes = self._peak_bytes()
        return self

    def __exit__(self, *exception: object) -> None:
        self.more_bytes = self._peak_bytes() - self._before_bytes

    def _peak_bytes(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


async def outcome_of(decoder: ImageDecoder, data: bytes) -> tuple[str, Image.Image | None]:
    """In the words of `Case.expected`; where the machine is too busy, callers come back."""
    for _ in range(4):
        try:
            return "ok", await decoder.decode(data, MAX_SIDE)
        except NotAnImage:
            return "not an image", None
        except BadImage:
            return "bad", None
        except ApiError as error:
            if error.condition is not BACKEND_UNAVAILABLE:
                raise
    raise AssertionError("nobody gets an answer")


async def still_decodes(decoder: ImageDecoder) -> bool:
    """And no fork is left behind that."""
    image = await decoder.decode(RED_PNG, MAX_SIDE)
    assert decoder.pid is not None
    assert not psutil.Process(decoder.pid).children()
    return image.getpixel((0, 0)) == RED


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_each_hostile_file_has_its_outcome_and_harms_nobody(bench: Bench, case: Case) -> None:
    data = case.build()

    async def work() -> tuple[str, Image.Image | None]:
        async with Heartbeat() as heartbeat:
            result = await outcome_of(bench.decoder, data)
        assert heartbeat.longest_s < MOST_LOOP_S
        return result

    zygote = bench.decoder.pid
    with PeakMemory() as memory:
        outcome, image = bench.run(work())
    assert outcome == case.expected
    assert memory.more_bytes < MOST_NODE_BYTES
    if image is not None:
        assert image.mode == "RGB"
        assert image.size == (case.size or image.size)
        assert max(image.size) <= MAX_SIDE
        assert case.colour in (None, image.getpixel((0, 0)))
    assert bench.run(still_decodes(bench.decoder))
    assert bench.decoder.pid == zygote


def test_there_are_as_many_as_the_report_lists() -> None:
    assert len({case.name for case in HOSTILE}) == len(HOSTILE) >= 68


def test_a_smaller_side_can_be_asked_for_but_no_larger_one(bench: Bench) -> None:
    data = flat(4_096, 1_024, 8, 0)
    assert bench.run(bench.decoder.decode(data, 512)).size == (512, 128)
    assert bench.run(bench.decoder.decode(data, 100_000)).size == (MAX_SIDE, 512)


def test_many_at_once_are_all_decoded(bench: Bench) -> None:
    async def work() -> list[Image.Image]:
        return await asyncio.gather(*(bench.decoder.decode(RED_PNG, MAX_SIDE) for _ in range(50)))

    assert all(image.getpixel((0, 0)) == RED for image in bench.run(work()))


def test_base64_is_read_where_the_file_is(bench: Bench) -> None:
    text = base64.b64encode(RED_PNG).decode()
    assert bench.run(bench.decoder.decode(text, MAX_SIDE)).getpixel((0, 0)) == RED
    for wrong in (text[:-1], text[:40] + "!" + text[41:], text + "\n", text[:60] + "\xe9" + text[61:], "!", "iVBO!"):
        with pytest.raises(NotBase64):
            bench.run(bench.decoder.decode(wrong, MAX_SIDE))
    for other in ("", "AAAA" * 10, base64.b64encode(b"%PDF-1.7 and more").decode()):
        with pytest.raises(NotAnImage):
            bench.run(bench.decoder.decode(other, MAX_SIDE))
    with pytest.raises(BadImage):
        bench.run(bench.decoder.decode(text[:80], MAX_SIDE))


def test_megabytes_of_base64_do_not_hold_up_the_loop(bench: Bench) -> None:
    """Nor other threads: whoever reads base64 in one piece lets nobody else run meanwhile."""
    text = base64.b64encode(RED_PNG + bytes(9 << 20)).decode()

    async def work() -> float:
        longest_s = 0.0

        async def beat() -> None:
            nonlocal longest_s
            while True:
                begun = time.perf_counter()
                await asyncio.sleep(0.001)
                longest_s = max(longest_s, time.perf_counter() - begun)

        beating = asyncio.create_task(beat())
        await asyncio.gather(*(bench.decoder.decode(text, MAX_SIDE) for _ in range(6)))
        beating.cancel()
        return longest_s

    assert any(bench.run(work()) < 0.05 for _ in range(10))  # others may have the processor meanwhile


def test_a_process_that_has_stopped_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_module, "LIMITS", replace(LIMITS, wall_s=-1.0))

    async def work() -> None:
        decoder = ImageDecoder()
        await decoder.start()
        os.kill(decoder.pid or 0, signal.SIGSTOP)
        with pytest.raises(ApiError) as caught:
            await decoder.decode(RED_PNG, MAX_SIDE)
        assert caught.value.condition is BACKEND_UNAVAILABLE
        assert caught.value.retry_after_s == 5
        assert (await decoder.decode(RED_PNG, MAX_SIDE)).getpixel((0, 0)) == RED
        await decoder.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())


async def decoding(decoder: ImageDecoder, data: bytes) -> tuple[asyncio.Task[Image.Image], psutil.Process]:
    """A file that is being decoded, and the fork at it; one that was done before anybody looked is begun anew."""
    assert decoder.pid is not None
    zygote = psutil.Process(decoder.pid)
    while True:
        task = asyncio.create_task(decoder.decode(data, MAX_SIDE))
        while not task.done():
            if forks := zygote.children():
                return task, forks[0]
            await asyncio.sleep(0.001)


def test_who_is_cancelled_has_the_decoding_stopped(bench: Bench) -> None:
    data = filtered_png()

    async def work() -> None:
        assert bench.decoder.pid is not None
        zygote = psutil.Process(bench.decoder.pid)
        task, fork = await decoding(bench.decoder, data)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while fork in zygote.children():
            await asyncio.sleep(0.001)

    bench.run(work())
    assert bench.run(still_decodes(bench.decoder))


def test_the_killed_process_is_replaced_and_the_file_decoded_all_the_same(bench: Bench) -> None:
    data = filtered_png()

    async def work() -> Image.Image:
        assert bench.decoder.pid is not None
        zygote = psutil.Process(bench.decoder.pid)
        task, _ = await decoding(bench.decoder, data)
        zygote.kill()
        return await task

    first = bench.decoder.pid
    assert bench.run(work()).size == (2048, 1311)
    assert bench.decoder.pid != first
    assert bench.run(still_decodes(bench.decoder))


def with_odd(work: Callable[[ImageDecoder], Awaitable[T]]) -> T:
    """Done with a process that does what the end of a file says (`odd_zygote.py`)."""

    async def run() -> T:
        decoder = ImageDecoder(ODD)
        try:
            return await work(decoder)
        finally:
            await decoder.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("garbage", "the image is damaged"),
        ("another size", "the image is damaged"),
        ("no size", "the image is damaged"),
        ("a giant", "the image is damaged"),
        ("an unknown flaw", "the image is damaged"),
        ("nothing", "the image is damaged"),
        ("longest", "the image is damaged"),
        ("too long", "the image takes too much memory to decode"),
        ("crash", "the image is damaged"),
        ("open a file", "the image is damaged"),
        ("spin", "the image takes too long to decode"),
        ("too much memory", "the image takes too much memory to decode"),
    ],
)
def test_whatever_the_process_does_is_a_bad_image(deed: str, words: str) -> None:
    with pytest.raises(BadImage, match=words):
        with_odd(lambda decoder: decoder.decode(PNG + b"#" + deed.encode(), MAX_SIDE))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: flat(6_250, 4_000), "the image takes too much memory to decode"),
        (lambda: flat(3_000, 2_000), "the image takes too much memory to decode"),  # its pixels, for the answer
    ],
)
def test_a_file_at_the_limits_is_told_why(data: Callable[[], bytes], words: str) -> None:
    with pytest.raises(BadImage, match=words):
        with_odd(lambda decoder: decoder.decode(data() + b"#decode", MAX_SIDE))


async def test_without_a_process_callers_are_told_to_come_back() -> None:
    decoder = ImageDecoder("no.such.module")
    for attempt in (decoder.start(), decoder.decode(RED_PNG, MAX_SIDE)):
        with pytest.raises(ApiError) as caught:
            await attempt
        assert caught.value.condition is BACKEND_UNAVAILABLE
        assert caught.value.retry_after_s == 5
    await decoder.close()


async def test_a_closed_decoder_decodes_no_more() -> None:
    decoder = ImageDecoder()
    await decoder.close()
    with pytest.raises(ApiError):
        await decoder.decode(RED_PNG, MAX_SIDE)


@pytest.mark.parametrize(("cores", "decoders"), [(1, 2), (4, 2), (8, 4), (64, 8)])
def test_decoding_never_takes_all_cores_of_a_large_machine(cores: int, decoders: int) -> None:
    assert most_at_once(cores) == decoders


def test_the_form_of_the_odd_answers_is_ours() -> None:
    """Else the tests above would prove nothing."""
    data = struct.pack("<I", MAX_SIDE) + RED_PNG
    assert with_odd(lambda decoder: decoder.decode(data[4:] + b"#decode", MAX_SIDE)).getpixel((0, 0)) == RED
