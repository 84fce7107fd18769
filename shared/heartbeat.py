"""What nodes tell of themselves in Redis, and how edges, nodes and operators read it.

Decides the names, the form and the lifetime of a heartbeat. Must not know who writes one, nor what follows from it.
A node is in the registry for as long as its last heartbeat lives: there is no clock to compare.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis.asyncio import Redis

NODES = "b3os:nodes"
"""The set of the ids of nodes that beat not long ago."""
EVERY_S = 2.0
LIFETIME_MS = 6_000
MOST_NODES = 256
MOST_MODELS = 64
NODE_ID = r"^[a-z0-9-]{1,32}$"
NodeState = Literal["starting", "ready", "restarting", "failed", "draining", "stopped"]
_log = logging.getLogger("b3os.heartbeat")

# One step, so that nobody is taken out of the set who beats just then.
# KEYS: 1 ids, 2 own heartbeat. ARGV: 1 own id, 2 heartbeat, 3 its lifetime in ms, 4 what their names begin with
_BEAT = """
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[1], ARGV[1])
local living = {}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local told = redis.call('GET', ARGV[4] .. id)
  if told then living[#living + 1] = told else redis.call('SREM', KEYS[1], id) end
end
return living
"""
# KEYS and ARGV: 1 as above. Another process under the same id may have come meanwhile: ARGV 2 is the own one's mark.
_LEAVE = """
local told = redis.call('GET', KEYS[2])
if told and string.find(told, ARGV[2], 1, true) then
  redis.call('DEL', KEYS[2])
  redis.call('SREM', KEYS[1], ARGV[1])
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
    running: int = Field(0, ge=0)
    waiting: int = Field(0, ge=0)
    cache_usage: float | None = None
    version: str = Field("", max_length=32)

    def serves(self, model: str) -> bool:
        """Whether it has a model of this id."""
        return any(card.id == model for card in self.models)


def node_key(node_id: str) -> str:
    """A string that expires."""
    return f"b3os:node:{node_id}"


async def send_heartbeat(redis: Redis, heartbeat: Heartbeat) -> list[Heartbeat]:
    """Tell of oneself, and hear of all that live, oneself included. Redis's errors pass."""
    own = (node_key(heartbeat.id), heartbeat.id, heartbeat.model_dump_json(), LIFETIME_MS, node_key(""))
    told = await cast("Any", redis.eval(_BEAT, 2, NODES, *own))
    return parse_heartbeats(told)


async def send_leave(redis: Redis, node_id: str, boot: str) -> None:
    """Be in the registry no longer. Redis's errors pass."""
    await cast("Any", redis.eval(_LEAVE, 2, NODES, node_key(node_id), node_id, boot))


async def fetch_heartbeats(redis: Redis, known: Iterable[str] = ()) -> list[Heartbeat]:
    """Those that live. Redis's errors pass.

    Args:
        known: ids to ask for in any case.
    """
    listed = await cast("Any", redis.smembers(NODES))
    ids = sorted({*known, *sorted(listed)[:MOST_NODES]})
    if not ids:
        return []
    told = cast("list[str | None]", await redis.mget([node_key(node_id) for node_id in ids]))
    return parse_heartbeats([text for text in told if text is not None])


def parse_heartbeats(texts: Sequence[str]) -> list[Heartbeat]:
    """By id, without those that can't be read: a node of another version keeps nobody from the others."""
    found: dict[str, Heartbeat] = {}
    for text in texts:
        try:
            heartbeat = Heartbeat.model_validate_json(text)
        except ValidationError as error:
            _log.warning("a heartbeat is unreadable", extra={"facts": {"faults": error.error_count()}})
            continue
        found[heartbeat.id] = heartbeat
    return [found[node_id] for node_id in sorted(found)]
