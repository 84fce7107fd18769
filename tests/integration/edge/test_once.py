"""Changes whose answer is lost on its way: the client sends them again, and who asked is told what became of it."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

import edge.auth
from edge.auth import key_store
from edge.auth.accounts import RedisAccounts, User
from edge.auth.credentials import mint_credential
from edge.auth.device import Approved, Asking, Codes, Denied, Expired, Pending, RedisDevices, digest_of
from edge.auth.key_record import KeyRecord
from edge.auth.key_store import RedisKeyStore
from edge.auth.sessions import Place, RedisSessions, Replaced
from edge.auth.sessions import digest_of as session_digest_of
from edge.auth.store import NoRoom, RecordExists, UnknownRecord
from shared.ids import new_record_id
from shared.redis import connect_redis
from tests.losing_redis import LosingRedis, losing_redis
from tests.redis_server import as_user

ASKING = Asking("a program", "203.0.113.1", 1)


@dataclass
class Scene:
    """An organization of its own with one user, and the stores over a way that loses answers."""

    way: LosingRedis
    redis: Redis
    operator: Redis
    org: str
    user: User

    @property
    def accounts(self) -> RedisAccounts:
        return RedisAccounts(self.redis)

    @property
    def sessions(self) -> RedisSessions:
        return RedisSessions(self.redis, time.time)

    @property
    def devices(self) -> RedisDevices:
        return RedisDevices(self.redis)

    @property
    def keys(self) -> RedisKeyStore:
        return RedisKeyStore(self.redis)

    def lose(self) -> None:
        """The answer of the next change."""
        self.way.will_lose = True

    def has_lost(self, answers: int = 1) -> bool:
        """Whether so many were lost by now, and the last one is."""
        return self.way.lost == answers and not self.way.will_lose

    async def make_key(self, **fields: object) -> tuple[str, KeyRecord]:
        """Like the route."""
        credential = mint_credential()
        record = KeyRecord(
            new_record_id("key"), "sk", self.org, "main", "test", ("infer:run",), "active", credential.hint, 1, None
        )
        record = replace(record, **fields)  # type: ignore[arg-type]
        await self.keys.create_key(credential.digest, record, is_bounded=True)
        return credential.digest, record

    async def approved(self) -> Codes:
        """Codes that a person said yes to."""
        codes = await self.devices.begin(ASKING)
        assert await self.devices.approve(codes.user_code, self.user.id, 1, self.org, "main")
        return codes


def new_user() -> User:
    user_id = new_record_id("usr")
    return User(user_id, f"{user_id}@example.com", "Ada", "active", "old", 1, 1)


@pytest.fixture
async def scene(edge_redis_url: str) -> AsyncIterator[Scene]:
    operator = connect_redis(as_user("operator", edge_redis_url))
    async with losing_redis(edge_redis_url) as (way, redis):
        found = Scene(way, redis, operator, new_record_id("org").replace("_", "-"), new_user())
        await found.accounts.create_user(found.user)
        await found.accounts.create_organization(found.org, 1)
        await found.accounts.create_project(found.org, "main")
        await found.accounts.set_role(found.org, found.user.id, "owner")
        yield found
    await operator.aclose()


async def test_a_password_that_was_changed_is_told_so_and_changed_once(scene: Scene) -> None:
    scene.lose()
    assert await scene.accounts.set_password(scene.user.id, "new", 1)
    assert scene.has_lost()
    user = await scene.accounts.fetch_user(scene.user.id)
    assert user is not None
    assert (user.password, user.password_version) == ("new", 2)
    assert not await scene.accounts.set_password(scene.user.id, "newer", 1)


async def test_a_session_goes_on_in_the_one_that_replaced_it(scene: Scene) -> None:
    first = await scene.sessions.open_session(scene.user, Place(scene.org, "main"))
    assert first is not None
    replaced = Replaced(session_digest_of(first), must_live=True)
    scene.lose()
    second = await scene.sessions.open_session(scene.user, Place(scene.org, "main"), replaced)
    assert scene.has_lost()
    assert second is not None
    assert await scene.sessions.fetch_session(session_digest_of(second)) is not None
    assert await scene.sessions.fetch_session(session_digest_of(first)) is None
    assert await scene.sessions.open_session(scene.user, Place(), replaced) is None


async def test_a_person_who_decides_is_told_that_it_was_done(scene: Scene) -> None:
    for answers, decision in enumerate(("approve", "deny"), 1):
        codes = await scene.devices.begin(ASKING)
        scene.lose()
        if decision == "approve":
            assert await scene.devices.approve(codes.user_code, scene.user.id, 1, scene.org, "main")
        else:
            assert await scene.devices.deny(codes.user_code)
        assert scene.has_lost(answers)
        assert not await scene.devices.deny(codes.user_code)


async def test_a_program_gets_what_was_decided_and_once(scene: Scene) -> None:
    codes = await scene.approved()
    scene.lose()
    outcome = await scene.devices.poll(codes.device_code)
    assert scene.has_lost()
    assert outcome == Approved(scene.user.id, 1, scene.org, "main", ASKING.client)
    assert not isinstance(await scene.devices.poll(codes.device_code), Approved)
    denied = await scene.devices.begin(ASKING)
    await scene.devices.deny(denied.user_code)
    scene.lose()
    assert isinstance(await scene.devices.poll(denied.device_code), Denied)
    assert scene.has_lost(2)


async def test_a_program_that_waits_is_not_slowed_down_by_a_question_that_was_sent_twice(scene: Scene) -> None:
    codes = await scene.devices.begin(ASKING)
    scene.lose()
    assert isinstance(await scene.devices.poll(codes.device_code), Pending)
    assert scene.has_lost()


async def test_a_log_in_by_device_begins_once(scene: Scene) -> None:
    before = await names_of(scene, "b3os:device-user-code:????-????")
    scene.lose()
    codes = await scene.devices.begin(ASKING)
    assert scene.has_lost()
    assert await scene.operator.exists(f"b3os:device:{digest_of(codes.device_code)}")
    assert len(await names_of(scene, "b3os:device-user-code:????-????") - before) == 1  # others may have expired


async def test_what_an_operator_made_is_not_said_to_be_there_already(scene: Scene) -> None:
    user, org = new_user(), f"{scene.org}-2"
    scene.lose()
    await scene.accounts.create_user(user)
    scene.lose()
    await scene.accounts.create_organization(org, 1)
    scene.lose()
    await scene.accounts.create_project(org, "main")
    assert scene.has_lost(3)
    with pytest.raises(RecordExists):
        await scene.accounts.create_user(user)
    with pytest.raises(RecordExists):
        await scene.accounts.create_organization(org, 1)
    with pytest.raises(RecordExists):
        await scene.accounts.create_project(org, "main")


async def test_a_member_who_was_removed_is_not_said_to_have_been_none(scene: Scene) -> None:
    scene.lose()
    await scene.accounts.remove_member(scene.org, scene.user.id)
    assert scene.has_lost()
    assert await scene.accounts.list_memberships(scene.user.id) == []
    with pytest.raises(UnknownRecord):
        await scene.accounts.remove_member(scene.org, scene.user.id)


async def test_a_key_that_took_the_last_room_is_not_said_to_have_found_none(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_store, "MAX_KEYS", 1)
    scene.lose()
    digest, _ = await scene.make_key()
    assert scene.has_lost()
    assert await scene.keys.fetch_key(digest) is not None
    with pytest.raises(NoRoom):
        await scene.make_key()


async def test_a_token_takes_the_place_of_one_and_no_other(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_store, "MAX_TOKENS", 3)
    facts = {"kind": "pat", "made_by": scene.user.id, "password_version": 1}
    made = [(await scene.make_key(**facts, expires_at_s=at))[0] for at in (1000, 2000, 3000)]
    scene.lose()
    made.append((await scene.make_key(**facts, expires_at_s=4000))[0])
    assert scene.has_lost()
    assert [await scene.keys.fetch_key(digest) is not None for digest in made] == [False, True, True, True]


async def test_all_that_ended_with_a_key_is_told(scene: Scene) -> None:
    digest, record = await scene.make_key()
    child, _ = await scene.make_key(parent_digest=digest)
    scene.lose()
    assert (await scene.keys.revoke_key(record.id)).digests == (digest, child)
    assert scene.has_lost()
    assert (await scene.keys.revoke_key(record.id)).digests == ()


async def test_who_asks_for_what_is_not_there_leaves_nothing_behind(scene: Scene) -> None:
    _, record = await scene.make_key()
    await scene.keys.revoke_key(record.id)
    before = set(await scene.operator.keys("*"))
    assert isinstance(await scene.devices.poll("x" * 43), Expired)
    assert not await scene.devices.deny("BBBB-BBBB")
    assert not await scene.accounts.set_password(scene.user.id, "new", 7)
    assert (await scene.keys.revoke_key(record.id)).digests == ()
    assert set(await scene.operator.keys("*")) <= before  # some of before may have expired


async def test_what_was_told_is_forgotten_soon(scene: Scene) -> None:
    marks = [name async for name in scene.operator.scan_iter("b3os:*:told:*")]
    ends_s = [await scene.operator.ttl(name) for name in marks]
    left_s = [end_s for end_s in ends_s if end_s != -2]  # said of what ended meanwhile; -1 of what never does
    assert left_s
    assert all(0 <= end_s <= 60 for end_s in left_s)


def test_no_store_of_identity_sends_a_script_in_another_way() -> None:
    folder = Path(edge.auth.__file__).parent
    senders = {path.name for path in folder.glob("*.py") if re.search(r"register_script|\.eval", path.read_text())}
    assert senders == {"store.py"}


async def names_of(scene: Scene, pattern: str) -> set[str]:
    return {name async for name in scene.operator.scan_iter(pattern)}
