"""The cache believes the store for seconds, and never brings a revoked key back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from edge.auth.cache import MET_PER_ENTRY, RETRY_S, RecordCache
from edge.auth.key_record import KeyRecord
from edge.auth.store import StoreUnavailable

KEY = KeyRecord("key_1", "sk", "acme", "main", "dev", ("infer:run",), "active", "abcd", 0, None)
REVOKED = replace(KEY, status="revoked")


class GatedStore:
    """A store whose every read waits until the test lets it go on; the answer is taken when the read begins."""

    def __init__(self) -> None:
        self.record: KeyRecord | None = KEY
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0
        self.is_down = False

    async def fetch_key(self, digest: str) -> KeyRecord | None:
        self.reads += 1
        record = self.record
        await self.gate.wait()
        if self.is_down:
            raise StoreUnavailable("down")
        return record


class Clock:
    """Seconds that the test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store() -> GatedStore:
    return GatedStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(store: GatedStore, clock: Clock) -> RecordCache[KeyRecord]:
    return RecordCache(store.fetch_key, clock, capacity=3)


async def begin(cache: RecordCache[KeyRecord]) -> asyncio.Task[KeyRecord | None]:
    task = asyncio.create_task(cache.get("d"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_a_known_key_is_read_again_after_ten_seconds(
    cache: RecordCache[KeyRecord], store: GatedStore, clock: Clock
) -> None:
    await cache.get("d")
    clock.now_s += 9.9
    await cache.get("d")
    assert store.reads == 1
    clock.now_s += 0.2
    await cache.get("d")
    assert store.reads == 2


async def test_an_unknown_key_is_read_again_after_two_seconds(
    cache: RecordCache[KeyRecord], store: GatedStore, clock: Clock
) -> None:
    store.record = None
    assert await cache.get("d") is None
    clock.now_s += 1.9
    assert await cache.get("d") is None
    assert store.reads == 1
    store.record = KEY
    clock.now_s += 0.2
    assert await cache.get("d") is KEY


async def test_those_who_wait_for_one_key_share_one_read(cache: RecordCache[KeyRecord], store: GatedStore) -> None:
    store.gate.clear()
    tasks = [await begin(cache) for _ in range(5)]
    store.gate.set()
    assert await asyncio.gather(*tasks) == [KEY] * 5
    assert store.reads == 1


async def test_a_waiter_that_leaves_does_not_fail_the_others(
    cache: RecordCache[KeyRecord], store: GatedStore
) -> None:
    store.gate.clear()
    first, second = await begin(cache), await begin(cache)
    first.cancel()
    store.gate.set()
    assert await second is KEY
    assert first.cancelled() or await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("forget", ["invalidate", "clear"])
async def test_a_revocation_during_a_load_never_comes_back(
    cache: RecordCache[KeyRecord], store: GatedStore, forget: str
) -> None:
    store.gate.clear()
    stale = await begin(cache)
    store.record = REVOKED
    cache.invalidate("d") if forget == "invalidate" else cache.clear()
    later = await begin(cache)  # came after the revocation: must not join the stale read
    store.gate.set()
    assert await stale is KEY
    assert await later is REVOKED
    assert await cache.get("d") is REVOKED
    assert store.reads == 2


async def test_a_stale_load_that_ends_last_does_not_overwrite(store: GatedStore, clock: Clock) -> None:
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    pending = iter(answers)

    async def load(digest: str) -> KeyRecord | None:
        del digest
        record: KeyRecord = await next(pending)
        return record

    cache = RecordCache(load, clock)
    stale = await begin(cache)
    cache.invalidate("d")
    fresh = await begin(cache)
    answers[1].set_result(REVOKED)
    assert await fresh is REVOKED
    answers[0].set_result(KEY)
    assert await stale is KEY
    assert await cache.get("d") is REVOKED


async def test_an_invalidation_drops_what_is_cached(cache: RecordCache[KeyRecord], store: GatedStore) -> None:
    await cache.get("d")
    store.record = REVOKED
    cache.invalidate("d")
    assert await cache.get("d") is REVOKED


async def test_a_failed_read_is_soon_forgotten(
    cache: RecordCache[KeyRecord], store: GatedStore, clock: Clock
) -> None:
    store.is_down = True
    with pytest.raises(StoreUnavailable):
        await cache.get("d")
    store.is_down = False
    clock.now_s += RETRY_S
    assert await cache.get("d") is KEY


async def test_made_up_keys_evict_no_real_one(cache: RecordCache[KeyRecord], store: GatedStore) -> None:
    await cache.get("real")
    store.record = None
    for number in range(50):
        await cache.get(f"made-up-{number}")
    assert len(cache) == 4
    assert await cache.get("real") is KEY


async def test_the_least_recently_used_goes_first(cache: RecordCache[KeyRecord], store: GatedStore) -> None:
    for digest in ("a", "b", "c", "a", "d"):
        await cache.get(digest)
    reads = store.reads
    await cache.get("a")
    assert store.reads == reads
    await cache.get("b")
    assert store.reads == reads + 1


def test_a_key_is_usable_while_active_in_time_and_its_organization_is() -> None:
    assert KEY.is_usable(5)
    assert not REVOKED.is_usable(5)
    assert not replace(KEY, org_is_active=False).is_usable(5)
    assert replace(KEY, expires_at_s=6).is_usable(5.9)
    assert not replace(KEY, expires_at_s=6).is_usable(6)


async def test_while_the_store_is_away_one_asks_at_a_time_and_the_others_hear_at_once(
    cache: RecordCache[KeyRecord], store: GatedStore, clock: Clock
) -> None:
    store.is_down = True
    with pytest.raises(StoreUnavailable):
        await cache.get("a")
    for digest in "abc":
        with pytest.raises(StoreUnavailable):
            await cache.get(digest)
    assert store.reads == 1
    clock.now_s += RETRY_S
    store.gate.clear()
    asking = asyncio.create_task(cache.get("a"))
    while store.reads == 1:
        await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await cache.get("b")
    assert store.reads == 2
    store.is_down = False
    store.gate.set()
    assert await asking == KEY
    assert await cache.get("b") == KEY


async def test_what_is_remembered_is_told_while_the_store_is_away(
    cache: RecordCache[KeyRecord], store: GatedStore
) -> None:
    assert await cache.get("a") == KEY
    store.is_down = True
    with pytest.raises(StoreUnavailable):
        await cache.get("b")
    assert await cache.get("a") == KEY


async def test_what_the_store_has_is_not_strange_for_longer_than_it_is_believed(
    cache: RecordCache[KeyRecord], store: GatedStore, clock: Clock
) -> None:
    assert cache.is_strange("d")
    await cache.get("d")
    clock.now_s += 3600
    assert not cache.is_strange("d")
    cache.clear()
    cache.invalidate("d")
    assert not cache.is_strange("d")
    await cache.get("d")
    assert store.reads == 2


async def test_what_the_store_has_no_longer_is_strange(
    cache: RecordCache[KeyRecord], store: GatedStore, clock: Clock
) -> None:
    await cache.get("d")
    clock.now_s += 11
    store.record = None
    await cache.get("d")
    assert not cache.is_strange("d")  # for two seconds nobody has to ask
    clock.now_s += 3
    assert cache.is_strange("d")


async def test_what_is_asked_already_is_not_strange(cache: RecordCache[KeyRecord], store: GatedStore) -> None:
    store.record = None
    store.gate.clear()
    task = await begin(cache)
    assert not cache.is_strange("d")
    assert cache.is_strange("e")
    store.gate.set()
    assert await task is None


async def test_what_is_expected_is_looked_up_anew_and_is_not_strange(
    cache: RecordCache[KeyRecord], store: GatedStore
) -> None:
    store.record = None
    assert await cache.get("d") is None
    store.record = KEY
    cache.expect("d")
    assert not cache.is_strange("d")
    assert await cache.get("d") == KEY


async def test_of_what_was_there_a_bounded_number_is_remembered(cache: RecordCache[KeyRecord]) -> None:
    most = 3 * MET_PER_ENTRY
    for at in range(most + 5):
        await cache.get(str(at))
    strange = [at for at in range(most + 5) if cache.is_strange(str(at))]
    assert strange == [0, 1, 2, 3, 4]
