"""Work in forks of a zygote: what they may not do, how they end, and what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from node.forks.messages import Outcome
from node.forks.pool import Busy, Pool
from node.forks.process import Gone, Killed
from tests.integration.node.odd_zygote import FORBIDDEN, MOST_ANSWER_BYTES

MODULE = "tests.integration.node.odd_zygote"
PROGRAM = """
import asyncio
from node.forks.pool import Pool
async def main():
    pool = Pool("tests.integration.node.odd_zygote", most_forks=2, most_waiting=2, start_s=60)
    await pool.start()
    print(pool.pid, flush=True)
    await pool.ask(b"#wait", read=bytes)
asyncio.run(main())
"""


def new_pool(*arguments: str, most_waiting: int = 8, answer_s: float = 300) -> Pool:
    return Pool(MODULE, *arguments, most_forks=2, most_waiting=most_waiting, start_s=60, answer_s=answer_s)


@pytest.fixture(scope="module")
async def pool() -> AsyncIterator[Pool]:
    """A running one with two forks."""
    pool = new_pool()
    await pool.start()
    yield pool
    await pool.close()


async def ask(pool: Pool, name: str, data: bytes = b"", payer: str = "") -> bytes:
    return await pool.ask(data, b"#", name.encode(), read=bytes, payer=payer)


async def outcome_of(pool: Pool, name: str) -> Outcome:
    with pytest.raises(Killed) as caught:
        await ask(pool, name)
    return caught.value.outcome


def forks_of(pool: Pool) -> list[psutil.Process]:
    assert pool.pid is not None
    return psutil.Process(pool.pid).children()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def has_ended(pid: int) -> bool:
    """A zombie has: whoever adopted it may not care for it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


async def test_megabytes_arrive_whole(pool: Pool) -> None:
    data = os.urandom(20 << 20)
    expected = f"{len(data)} {hashlib.sha256(data).hexdigest()}"
    assert (await ask(pool, "measure", data)).decode() == expected
    assert await ask(pool, "longest") == bytes(MOST_ANSWER_BYTES)
    assert await ask(pool, "nothing") == b""


async def test_text_arrives_as_ascii(pool: Pool) -> None:
    text = "ab=c" * 700_000 + "\xe9\ud800\u20ac"
    expected = f"{len(text)} {hashlib.sha256(text.encode('ascii', 'replace')).hexdigest()}"
    assert (await pool.ask(text, b"#measure", read=bytes)).decode() == expected


async def test_many_at_once_get_their_own_answers(pool: Pool) -> None:
    texts = [b"%d" % number for number in range(10)]
    answers = await asyncio.gather(*(ask(pool, "measure", text, payer=text.decode()) for text in texts))
    assert [answer.split()[1].decode() for answer in answers] == [hashlib.sha256(text).hexdigest() for text in texts]


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_it_works_on_both_loops(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def work() -> None:
        pool = new_pool()
        try:
            assert (await ask(pool, "measure", b"x" * 1000)).startswith(b"1000 ")
            assert await outcome_of(pool, "crash") is Outcome.DIED
        finally:
            await pool.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work())


# What a fork may not do.


@pytest.mark.parametrize("deed", FORBIDDEN)
async def test_a_fork_that_does_more_than_compute_is_killed(
    pool: Pool, caplog: pytest.LogCaptureFixture, deed: str
) -> None:
    with caplog.at_level(logging.INFO, "b3os.forks"):
        assert await outcome_of(pool, deed) is Outcome.DIED
    assert caplog.records[-1].__dict__["facts"] == {"outcome": "DIED", "signal": signal.SIGSYS}
    assert await ask(pool, "nothing") == b""


async def test_c_code_may_ask_for_the_time_which_it_does_to_complain(pool: Pool) -> None:
    assert await ask(pool, "ask C for the time") == b"told"


async def test_a_fork_sees_no_descriptor_but_its_own_answer(pool: Pool) -> None:
    waiting = asyncio.create_task(ask(pool, "wait"))
    await until(lambda: len(forks_of(pool)) == 1)
    standard_output, standard_error, *others = await ask(pool, "open descriptors")
    assert (standard_output, standard_error, len(others)) == (1, 2, 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_an_answer_does_not_grow_beyond_its_bound(pool: Pool) -> None:
    assert await ask(pool, "grow answer") in (b"EPERM", b"EFBIG")


async def test_where_memory_ends_a_fork_goes_before_the_node(pool: Pool) -> None:
    waiting = asyncio.create_task(ask(pool, "wait"))
    await until(lambda: len(forks_of(pool)) == 1)
    (fork,) = forks_of(pool)
    await until(lambda: Path(f"/proc/{fork.pid}/oom_score_adj").read_text().strip() == "1000")
    waiting.cancel()
    await gathered([waiting])


async def test_without_filters_work_goes_on_bounded_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = new_pool("300", "unjailed")
    await pool.start()
    assert await ask(pool, "nothing") == b""
    assert await outcome_of(pool, "spin") is Outcome.SLOW
    assert await outcome_of(pool, "open a file") is Outcome.DIED  # it has no descriptor for it
    os.kill(pool.pid or 0, signal.SIGKILL)
    assert await ask(pool, "nothing") == b""
    await pool.close()
    assert [record.levelname for record in caplog.records if "filter" in record.message] == ["WARNING"]


# How a fork ends.


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("spin", Outcome.SLOW),
        ("spin without signals", Outcome.SLOW),
        ("too much memory", Outcome.LARGE),
        ("too long", Outcome.LARGE),
        ("crash", Outcome.DIED),
        ("no such work", Outcome.DIED),
    ],
)
async def test_each_end_has_its_name(pool: Pool, name: str, outcome: Outcome) -> None:
    assert await outcome_of(pool, name) is outcome
    assert not forks_of(pool)


async def test_who_uses_no_processor_is_ended_by_the_clock() -> None:
    pool = new_pool("0.3")
    assert await outcome_of(pool, "wait") is Outcome.LATE
    assert not forks_of(pool)
    await pool.close()


async def test_who_takes_long_goes_on_at_low_priority() -> None:
    pool = new_pool("300", "impatient")
    await pool.start()
    waiting = asyncio.create_task(ask(pool, "wait"))
    await until(lambda: len(forks_of(pool)) == 1)
    (fork,) = forks_of(pool)
    await until(lambda: os.sched_getscheduler(fork.pid) == os.SCHED_IDLE)
    await pool.close()
    await gathered([waiting])


async def test_who_is_cancelled_has_the_fork_killed_and_its_place_freed(pool: Pool) -> None:
    for _ in range(3):
        tasks = [asyncio.create_task(ask(pool, "wait")) for _ in range(2)]
        await until(lambda: len(forks_of(pool)) == 2)
        for task in tasks:
            task.cancel()
        assert await ask(pool, "nothing") == b""
        await until(lambda: not forks_of(pool))
        assert all(isinstance(result, asyncio.CancelledError) for result in await gathered(tasks))


async def gathered(tasks: list[asyncio.Task[bytes]]) -> list[bytes | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_whenever_someone_is_cancelled_nothing_stays_open(pool: Pool) -> None:
    await ask(pool, "nothing")
    assert pool.pid is not None
    node, zygote = psutil.Process(), psutil.Process(pool.pid)
    in_node, in_zygote = node.num_fds(), zygote.num_fds()
    for turns in range(60):
        task = asyncio.create_task(ask(pool, "measure", bytes(1000)))
        for _ in range(turns % 20):
            await asyncio.sleep(0.0005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await ask(pool, "nothing")
    await until(lambda: node.num_fds() <= in_node and zygote.num_fds() <= in_zygote)
    assert not forks_of(pool)


async def test_too_many_who_wait_are_turned_away(pool: Pool) -> None:
    crowded = new_pool(most_waiting=1)
    tasks = [asyncio.create_task(ask(crowded, "wait", payer=payer)) for payer in "abc"]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await ask(crowded, "nothing", payer="d")
    for task in tasks:
        task.cancel()
    await gathered(tasks)
    assert await ask(crowded, "nothing") == b""
    await crowded.close()


async def test_one_payer_neither_fills_the_queue_nor_stands_before_another(pool: Pool) -> None:
    flood = [asyncio.create_task(ask(pool, "wait", payer="one")) for _ in range(5)]
    await until(lambda: len(forks_of(pool)) == 2)
    with pytest.raises(Busy):
        await ask(pool, "nothing", payer="one")
    other = asyncio.create_task(ask(pool, "nothing", payer="another"))
    await asyncio.sleep(0)
    flood[0].cancel()
    assert await other == b""
    assert [task.done() for task in flood[1:]] == [False] * 4
    for task in flood:
        task.cancel()
    await gathered(flood)


# What is left when a process ends.


async def test_a_killed_zygote_takes_its_forks_along_and_is_replaced() -> None:
    pool = new_pool()
    await pool.start()
    first = pool.pid
    assert first is not None
    waiting = asyncio.create_task(ask(pool, "wait"))
    await until(lambda: len(forks_of(pool)) == 1)
    (fork,) = forks_of(pool)
    os.kill(first, signal.SIGKILL)
    await until(lambda: has_ended(fork.pid))
    assert await ask(pool, "nothing") == b""
    assert pool.pid != first
    await until(lambda: len(forks_of(pool)) == 1)  # the work is tried once more
    os.kill(pool.pid or 0, signal.SIGKILL)
    with pytest.raises(Gone):  # and no more often, since it may be its fault
        await waiting
    await pool.close()


async def test_a_zygote_that_has_stopped_is_replaced_and_nobody_waits_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = new_pool(answer_s=4.0)
    await pool.start()
    first = pool.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    tasks = [asyncio.create_task(ask(pool, "nothing", payer=payer)) for payer in "abcd"]
    async with asyncio.timeout(60):
        results = await gathered(tasks)
    # Two were at work, one of which noticed; what the others asked is asked again.
    assert Killed(Outcome.UNABLE) in results
    assert all(result in (b"", Killed(Outcome.UNABLE)) for result in results)
    assert await ask(pool, "nothing") == b""
    assert pool.pid != first
    await until(lambda: has_ended(first))
    assert [record.levelname for record in caplog.records if "stopped" in record.message] == ["ERROR"]
    await pool.close()


async def test_who_leaves_a_stopped_zygote_frees_his_place_all_the_same() -> None:
    pool = new_pool(answer_s=4.0)
    await pool.start()
    os.kill(pool.pid or 0, signal.SIGSTOP)
    tasks = [asyncio.create_task(ask(pool, "nothing")) for _ in range(2)]
    await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await gathered(tasks)
    async with asyncio.timeout(60):
        assert await ask(pool, "nothing") == b""
    await pool.close()


async def test_a_job_that_takes_its_time_is_no_stopped_zygote() -> None:
    pool = new_pool("0.3", answer_s=15.0)
    assert await outcome_of(pool, "wait") is Outcome.LATE
    first = pool.pid
    assert await ask(pool, "nothing") == b""
    assert pool.pid == first
    await pool.close()


async def test_who_closes_leaves_nothing_and_no_one_waiting() -> None:
    pool = new_pool()
    await pool.start()
    waiting = asyncio.create_task(ask(pool, "wait"))
    await until(lambda: len(forks_of(pool)) == 1)
    pids = [pool.pid, *(fork.pid for fork in forks_of(pool))]
    await pool.close()
    with pytest.raises(Gone):
        await waiting
    assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
    with pytest.raises(Gone):
        await ask(pool, "nothing")


async def test_a_program_that_does_not_start_is_no_hang() -> None:
    pool = Pool("no.such.module", most_forks=1, most_waiting=1, start_s=60)
    with pytest.raises(Gone):
        await pool.start()
    await pool.close()


async def test_all_ends_with_the_node_and_no_secret_is_seen() -> None:
    node = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE, env={**os.environ, "B3OS_SECRET": "hush"}
    )
    assert node.stdout is not None
    zygote = psutil.Process(int(await asyncio.wait_for(node.stdout.readline(), 60)))
    await until(lambda: len(zygote.children()) == 1)
    (fork,) = zygote.children()
    assert "B3OS_SECRET" not in zygote.environ()
    assert zygote.num_threads() == 1
    node.kill()
    await node.wait()
    await until(lambda: has_ended(zygote.pid) and has_ended(fork.pid))
