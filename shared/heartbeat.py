"""What nodes tell of themselves in Redis, and how edges, nodes and operators read it.

Decides the names, the form and the lifetime of a heartbeat. Must not know who writes one, nor what follows from it.
A node is in the registry for as long as its last heartbeat lives: there is no clock to compare. One that stops in
order leaves the set of ids at once, and its last heartbeat says `stopped`, to those who knew it and ask for it by its
id: they can tell that it has not died.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis.asyncio import Redis

NODES = "b3os:nodes"
"""The set of the ids of nodes that beat, until a node that reads it finds one dead."""
EVERY_S = 2.0
LIFETIME_MS = 6_000
MOST_NODES = 2_048
AT_ONCE = 256
"""Heartbeats in one answer of Redis: nobody else waits there for longer than these take."""
MOST_MODELS = 64
NODE_ID = r"^[a-z0-9-]{1,32}$"
NodeState = Literal["starting", "ready", "restarting", "failed", "draining", "stopped"]
_log = logging.getLogger("b3os.heartbeat")

# It costs the same however many there are.
# KEYS: 1 ids, 2 own heartbeat. ARGV: 1 own id, 2 heartbeat, 3 its lifetime in ms, 4 the own process
_BEAT = """
local told = redis.pcall('GET', KEYS[2])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
if type(told) == 'string' and not string.find(told, ARGV[4], 1, true) then return told end
return false
"""
# One step, so that nobody is taken out of the set who beats just then.
# KEYS: 1 ids. ARGV: 1 what names of heartbeats begin with, then ids
_FORGET = """
for at = 2, #ARGV do
  if redis.call('EXISTS', ARGV[1] .. ARGV[at]) == 0 then redis.call('SREM', KEYS[1], ARGV[at]) end
end
return 1
"""
# KEYS and ARGV as of a beat. Another process under the same id may have come meanwhile. What frees comes first: after
# that even a full Redis takes the rest.
_LEAVE = """
local told = redis.pcall('GET', KEYS[2])
if type(told) ~= 'string' or string.find(told, ARGV[4], 1, true) then
  redis.call('SREM', KEYS[1], ARGV[1])
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
"""


class ModelCard(BaseModel):
    """A served model, as lists show it.

    Attributes:
        created_s: when a node began to serve it (Unix seconds).
        context_tokens: the window; None while it is not known yet.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(max_length=128)
    display_name: str = Field(max_length=256)
    created_s: int
    context_tokens: int | None = None
    takes_images: bool = False


class Heartbeat(BaseModel):
    """What a node tells every two seconds.

    Attributes:
        boot, beat: which process of this id tells, and how often it has; both together are new in each heartbeat.
        running, waiting: requests in its engine. cache_usage: the part of its cache that is in use, 0 to 1.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(pattern=NODE_ID)
    url: str = Field(max_length=256)
    boot: str = Field(max_length=32)
    beat: int
    state: NodeState
    models: tuple[ModelCard, ...] = Field(max_length=MOST_MODELS)
    running: int = Field(default=0, ge=0)
    waiting: int = Field(default=0, ge=0)
    cache_usage: float | None = None
    version: str = Field(default="", max_length=32)

    def serves(self, model: str) -> bool:
        """Whether it has a model of this id."""
        return any(card.id == model for card in self.models)


def node_key(node_id: str) -> str:
    """A string that expires."""
    return f"b3os:node:{node_id}"


async def send_heartbeat(redis: Redis, heartbeat: Heartbeat) -> Heartbeat | None:
    """Tell of oneself, and hear what another process told under this id since, if any did. Redis's errors pass."""
    other: str | None = await cast("Any", redis.eval(_BEAT, 2, NODES, *_own(heartbeat)))
    return None if other is None else _parse(other)


async def send_leave(redis: Redis, last: Heartbeat) -> None:
    """Be in the registry no longer, and leave word of it: a heartbeat that says `stopped`. Redis's errors pass."""
    await cast("Any", redis.eval(_LEAVE, 2, NODES, *_own(last)))


def _own(heartbeat: Heartbeat) -> tuple[str, ...]:
    return node_key(heartbeat.id), heartbeat.id, heartbeat.model_dump_json(), str(LIFETIME_MS), heartbeat.boot


async def read_nodes(redis: Redis, ids: Iterable[str]) -> dict[str, str]:
    """What those of these that live tell, by id. Redis's errors pass."""
    found: dict[str, str] = {}
    for piece in _pieces(sorted(ids)):
        told = cast("list[str | None]", await redis.mget([node_key(node_id) for node_id in piece]))
        found |= {node_id: text for node_id, text in zip(piece, told, strict=True) if text is not None}
    return found


async def read_all(redis: Redis, known: Iterable[str] = ()) -> dict[str, str]:
    """What all that live tell, by id. Redis's errors pass.

    Args:
        known: ids to ask for in any case.
    """
    return await read_nodes(redis, {*known, *await _list_ids(redis)})


async def hear_all(redis: Redis) -> dict[str, str]:
    """The same for nodes, who may write: the dead are in the registry no longer. Redis's errors pass."""
    ids = await _list_ids(redis)
    found = await read_nodes(redis, ids)
    for piece in _pieces([node_id for node_id in ids if node_id not in found]):
        await cast("Any", redis.eval(_FORGET, 1, NODES, node_key(""), *piece))
    return found


async def fetch_heartbeats(redis: Redis, known: Iterable[str] = ()) -> list[Heartbeat]:
    """The same, parsed, for those who look once."""
    return HeartbeatParser().parse(await read_all(redis, known))


class HeartbeatParser:
    """Parses what is read again and again: a heartbeat that is the same as before is not looked at again."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[str, Heartbeat | None]] = {}

    def parse(self, texts: Mapping[str, str]) -> list[Heartbeat]:
        """By id, without those that can't be read: a node of another version keeps nobody from the others."""
        before, self._parsed = self._parsed, {}
        for node_id, text in texts.items():
            was = before.get(node_id)
            self._parsed[node_id] = was if was is not None and was[0] == text else (text, _parse(text))
        found = {each.id: each for _, each in self._parsed.values() if each is not None}
        return [found[node_id] for node_id in sorted(found)]


def _parse(text: str) -> Heartbeat | None:
    try:
        return Heartbeat.model_validate_json(text)
    except ValidationError as error:
        _log.warning("a heartbeat is unreadable", extra={"facts": {"faults": error.error_count()}})
        return None


async def _list_ids(redis: Redis) -> Sequence[str]:
    return sorted(await cast("Any", redis.smembers(NODES)))[:MOST_NODES]


def _pieces(ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ids[at : at + AT_ONCE] for at in range(0, len(ids), AT_ONCE))
