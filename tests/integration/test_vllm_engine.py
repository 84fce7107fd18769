"""The port's promises, kept by vLLM on the small model."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator

import pytest

from node.engine.port import End, Guide, Piece, Prompt, Sampling, Started, Text
from node.engine.vllm_engine import VllmEngine
from shared.errors import INVALID_REQUEST, PROMPT_TOO_LONG, ApiError
from tests.integration.egress.test_limits import Heartbeat

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
STORY = [{"role": "user", "content": "Tell a long story about a fox."}]


def greedy(max_tokens: int) -> Sampling:
    return Sampling(max_tokens=max_tokens, temperature=0)


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


async def answer(engine: VllmEngine, prompt: Prompt, sampling: Sampling) -> list[Piece]:
    generation = engine.generate(await engine.render(prompt), Guide(), sampling, "req_test")
    return [piece async for piece in generation]


async def until_idle(engine: VllmEngine) -> None:
    async with asyncio.timeout(60):
        while engine.unfinished_requests():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
async def _nothing_is_left(vllm_engine: VllmEngine) -> AsyncIterator[None]:
    yield
    await until_idle(vllm_engine)


async def test_the_capital_of_france_is_paris(vllm_engine: VllmEngine) -> None:
    pieces = await answer(vllm_engine, Prompt(FRANCE), greedy(40))
    assert "Paris" in text_of(pieces)
    assert [type(piece) for piece in (pieces[0], pieces[-1])] == [Started, End]
    assert pieces[-1] == End("stop")


async def test_its_scheduler_tells_how_busy_it_is(vllm_engine: VllmEngine) -> None:
    generation = vllm_engine.generate(await vllm_engine.render(Prompt(STORY)), Guide(), greedy(200), "req_busy")
    pieces = aiter(generation)
    for _ in range(5):
        await anext(pieces)
    busy = vllm_engine.load()
    await generation.aclose()
    assert (busy.running, busy.waiting) == (1, 0)
    assert busy.cache_usage is not None
    assert 0 < busy.cache_usage < 1


async def test_started_comes_once_with_the_cores_timings(vllm_engine: VllmEngine) -> None:
    started = [p for p in await answer(vllm_engine, Prompt(FRANCE), greedy(3)) if isinstance(p, Started)]
    assert len(started) == 1
    assert started[0].queue_ms is not None
    assert started[0].prefill_ms is not None
    assert started[0].queue_ms >= 0
    assert started[0].prefill_ms > 0


async def test_usage_counts_ids_and_not_pieces(vllm_engine: VllmEngine) -> None:
    rendered = await vllm_engine.render(Prompt(FRANCE))
    generation = vllm_engine.generate(rendered, Guide(), greedy(40), "req_test")
    pieces = []
    async for piece in generation:
        pieces.append(piece)
        time.sleep(0.05)  # noqa: ASYNC251 - the loop is late on purpose, so that several tokens come in one piece
    tokenizer = vllm_engine._engine.renderer.get_tokenizer()
    assert generation.usage.input_tokens == rendered.prompt_tokens == len(rendered.token_ids)
    ids = tokenizer.encode(text_of(pieces), add_special_tokens=False)
    assert generation.usage.output_tokens == len(ids) + 1  # and the end of the turn


async def test_the_scheduler_tells_how_busy_it_is(vllm_engine: VllmEngine) -> None:
    assert vllm_engine.load().running == vllm_engine.load().waiting == 0
    generation = vllm_engine.generate(await vllm_engine.render(Prompt(STORY)), Guide(), greedy(150), "req_test")
    assert vllm_engine.load().running == 0  # nobody has told of it yet
    told = max([vllm_engine.load() async for _ in generation], key=lambda load: load.running)
    assert (told.running, told.waiting) == (1, 0)
    assert told.cache_usage is not None
    assert 0 < told.cache_usage <= 1
    assert vllm_engine.load().running == vllm_engine.load().waiting == 0


async def test_usage_is_current_while_it_runs(vllm_engine: VllmEngine) -> None:
    generation = vllm_engine.generate(await vllm_engine.render(Prompt(STORY)), Guide(), greedy(100), "req_test")
    counts = [generation.usage.output_tokens async for _ in generation]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == 100  # more than come in one piece where this loop is late


async def test_max_tokens_ends_with_length(vllm_engine: VllmEngine) -> None:
    pieces = await answer(vllm_engine, Prompt(STORY), greedy(5))
    assert pieces[-1] == End("length")


async def test_a_started_answer_is_continued(vllm_engine: VllmEngine) -> None:
    messages = [*FRANCE, {"role": "assistant", "content": "The capital of France is the city of"}]
    pieces = await answer(vllm_engine, Prompt(messages, continues_last=True), greedy(8))
    assert text_of(pieces).startswith(" Paris")


async def test_closing_frees_the_engine_at_once(vllm_engine: VllmEngine) -> None:
    generation = vllm_engine.generate(await vllm_engine.render(Prompt(STORY)), Guide(), greedy(2000), "req_test")
    async for piece in generation:
        if isinstance(piece, Text):
            break
    assert vllm_engine.unfinished_requests() == 1
    await generation.aclose()
    await generation.aclose()
    await until_idle(vllm_engine)
    assert 0 < generation.usage.output_tokens < 1000  # the first piece has many where this loop was late


async def test_a_cancelled_reader_frees_the_engine(vllm_engine: VllmEngine) -> None:
    task = asyncio.create_task(answer(vllm_engine, Prompt(STORY), greedy(2000)))
    while not vllm_engine.unfinished_requests():
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until_idle(vllm_engine)


async def test_closing_before_the_first_piece_is_fine(vllm_engine: VllmEngine) -> None:
    generation = vllm_engine.generate(await vllm_engine.render(Prompt(STORY)), Guide(), greedy(2000), "req_test")
    await generation.aclose()
    assert [piece async for piece in generation] == []


async def test_two_answers_interleave(vllm_engine: VllmEngine) -> None:
    order: list[str] = []

    async def read(name: str) -> None:
        generation = vllm_engine.generate(await vllm_engine.render(Prompt(STORY)), Guide(), greedy(100), name)
        async for _ in generation:
            order.append(name)  # noqa: PERF401 - the point is when

    await asyncio.gather(read("a"), read("b"))
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes > 10


async def test_the_longest_prompt_fits_and_one_more_token_does_not(vllm_engine: VllmEngine) -> None:
    maximum = vllm_engine.context_tokens - 1

    async def length(words: int) -> int:
        prompt = Prompt([{"role": "user", "content": "one" + " a" * words}])
        return (await vllm_engine.render(prompt)).prompt_tokens

    overhead = await length(0)
    assert await length(maximum - overhead) == maximum
    with pytest.raises(ApiError) as caught:
        await length(maximum - overhead + 1)
    assert caught.value.condition is PROMPT_TOO_LONG
    assert caught.value.message == f"prompt is too long: {maximum + 1} tokens > {maximum} maximum"


@pytest.mark.parametrize("words", [20_000, 100_000, 4_000_000])
async def test_the_length_of_a_prompt_that_does_not_fit_is_honest(vllm_engine: VllmEngine, words: int) -> None:
    begun = time.monotonic()
    with pytest.raises(ApiError, match="prompt is too long") as caught:
        await vllm_engine.render(Prompt([{"role": "user", "content": "one" + " a" * words}]))
    told = int(caught.value.message.split()[4])
    assert vllm_engine.context_tokens <= told <= words + 100
    assert told > words or words > 4 * vllm_engine.context_tokens  # exact unless absurd
    assert time.monotonic() - begun < 10


async def test_max_tokens_is_capped_to_the_room_that_is_left(
    vllm_engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = await vllm_engine.render(Prompt(STORY))
    monkeypatch.setattr(vllm_engine, "context_tokens", rendered.prompt_tokens + 5)
    generation = vllm_engine.generate(rendered, Guide(), greedy(1_000_000), "req_test")
    pieces = [piece async for piece in generation]
    assert pieces[-1] == End("length")
    assert generation.usage.output_tokens == 5


async def test_top_p_zero_takes_the_likeliest(vllm_engine: VllmEngine) -> None:
    likeliest = text_of(await answer(vllm_engine, Prompt(STORY), greedy(12)))
    sampling = Sampling(max_tokens=12, temperature=1.5, top_p=0)
    assert text_of(await answer(vllm_engine, Prompt(STORY), sampling)) == likeliest


async def test_what_vllm_refuses_is_the_callers_fault_and_names_the_field(vllm_engine: VllmEngine) -> None:
    rendered = await vllm_engine.render(Prompt(FRANCE))
    with pytest.raises(ApiError) as caught:
        vllm_engine.generate(rendered, Guide(), Sampling(max_tokens=5, temperature=-3), "req_test")
    assert caught.value.condition is INVALID_REQUEST
    assert caught.value.param == "temperature"


async def test_the_special_tokens_are_listed(vllm_engine: VllmEngine) -> None:
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= vllm_engine.special_tokens


async def test_one_organizations_prefix_is_not_anothers(vllm_engine: VllmEngine) -> None:
    messages = [{"role": "user", "content": "salt " * 300}]

    async def cached(salt: str) -> int:
        rendered = await vllm_engine.render(Prompt(messages, cache_salt=salt))
        generation = vllm_engine.generate(rendered, Guide(), greedy(1), "req_test")
        async for _ in generation:
            pass
        return generation.usage.cached_tokens

    assert await cached("one") == 0
    assert await cached("one") > 0
    assert await cached("other") == 0


async def test_the_loop_goes_on_while_a_long_prompt_is_rendered(vllm_engine: VllmEngine) -> None:
    async with Heartbeat() as heartbeat:
        await vllm_engine.render(Prompt([{"role": "user", "content": "one" + " a" * 8000}]))
    assert heartbeat.longest_s < 0.5
