"""Images in vLLM: what it keeps of them is one organization's, and nothing of them is looked at on the loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from node.catalog.served import ServedModel
from node.engine.port import Guide, Prompt, Sampling, Text
from node.engine.vllm_engine import RenderedPrompt, VllmEngine
from shared.errors import INVALID_REQUEST, ApiError
from tests.integration.egress.test_limits import Heartbeat
from tests.vllm_fixture import start_smollm2

TINY = Path(__file__).parents[1] / "models" / "tiny-vision"
RED, BLUE = Image.new("RGB", (64, 64), "red"), Image.new("RGB", (64, 64), "blue")


@pytest.fixture(scope="module")
async def tiny() -> AsyncIterator[VllmEngine]:
    """The model with eyes, loaded."""
    engine = await start_smollm2(ServedModel("b3os/tiny-vision", "Tiny", str(TINY), chat_template=None))
    yield engine
    await engine.shutdown()
    del engine._engine  # vLLM's __del__ fails if it runs as late as the interpreter's end


def asking(*images: Image.Image, salt: str | None = "a" * 64) -> Prompt:
    """What the pictures show."""
    parts = [{"type": "image", "image": image} for image in images]
    content = [*parts, {"type": "text", "text": "What colour is it?"}]
    return Prompt([{"role": "user", "content": content}], cache_salt=salt)


def names_of(rendered: Any) -> list[str]:
    """By which vLLM knows its images, in every cache."""
    assert isinstance(rendered, RenderedPrompt)
    names: list[str] = rendered.engine_input["mm_hashes"]["image"]
    return names


async def answer(engine: VllmEngine, prompt: Prompt) -> tuple[str, int]:
    """Its text, and how much of the prompt came from a cache."""
    sampling = Sampling(max_tokens=20, temperature=0)
    generation = engine.generate(await engine.render(prompt), Guide(), sampling, f"req_{time.monotonic_ns()}")
    text = "".join([piece.text async for piece in generation if isinstance(piece, Text)])
    return text, generation.usage.cached_tokens


async def test_an_image_has_another_name_for_each_organization(tiny: VllmEngine) -> None:
    first = names_of(await tiny.render(asking(RED, BLUE, RED)))
    assert first[0] == first[2] != first[1]
    assert names_of(await tiny.render(asking(RED, BLUE, RED))) == first
    others = names_of(await tiny.render(asking(RED, BLUE, RED, salt="b" * 64)))
    assert not set(others) & set(first)


async def test_the_name_tells_shape_from_shape(tiny: VllmEngine) -> None:
    wide, high = Image.new("RGB", (64, 32)), Image.new("RGB", (32, 64))
    first, second = names_of(await tiny.render(asking(wide, high)))
    assert first != second


async def test_what_another_organization_sent_is_in_no_cache(tiny: VllmEngine) -> None:
    """The names are vLLM's own keys: here those of what its processor made."""
    cache: Any = tiny._engine.renderer._mm_processor_only_cache
    image = Image.effect_noise((64, 64), 90).convert("RGB")
    (name,) = names_of(await tiny.render(asking(image, salt="c" * 64)))
    (other,) = names_of(await tiny.render(asking(image, salt="d" * 64)))
    assert cache.is_cached([name, other, "another"]) == [True, True, False]
    (third,) = names_of(await tiny.render(asking(image.copy(), salt="c" * 64)))
    assert third == name


async def test_cached_answers_are_right(tiny: VllmEngine) -> None:
    for image, word in ((RED, "red"), (BLUE, "blue")):
        first, *others = [await answer(tiny, asking(image, salt=salt * 64)) for salt in "ababc"]
        assert word in first[0]
        assert [text for text, _ in others] == [first[0]] * 4


async def test_an_image_that_was_only_counted_is_answered_all_the_same(tiny: VllmEngine) -> None:
    """vLLM's core must not rely on having had what was rendered and never asked about."""
    image = Image.new("RGB", (64, 64), "red")
    image.putpixel((3, 3), (1, 2, 3))
    for _ in range(2):
        await tiny.render(asking(image))
    first, _ = await answer(tiny, asking(image))
    assert first == (await answer(tiny, asking(image)))[0] != ""


async def test_an_image_that_the_model_cannot_take_is_told_as_such(
    tiny: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("whatever a processor says")

    monkeypatch.setattr(tiny._engine.renderer, "render_chat_async", refuse)
    with pytest.raises(ValueError, match="whatever"):
        await tiny.render(asking())
    for images, words in (((RED,), "this image"), ((RED, BLUE), "these images")):
        with pytest.raises(ApiError) as caught:
            await tiny.render(asking(*images))
        assert caught.value.condition is INVALID_REQUEST
        assert caught.value.param == "messages"
        assert caught.value.message == f"messages: Could not process image: the model can't take {words}"


async def test_the_loop_goes_on_whatever_is_in_a_prompt(tiny: VllmEngine) -> None:
    """Text of megabytes, and pixels of megabytes."""
    large = Image.effect_noise((2048, 2048), 90).convert("RGB")
    text = Prompt([{"role": "user", "content": "x" * 10_000_000}], cache_salt="a" * 64)
    for prompt in (text, asking(large, large)):
        async with Heartbeat() as heartbeat:
            with suppress(ApiError):  # the text is too long
                await tiny.render(prompt)
        assert heartbeat.longest_s < 0.05
