"""What an edge and a node may do in Redis: two users, and a default user whom nobody can be.

Decides keys, channels and commands, and writes them as an ACL file. Must not know where passwords come from, and
writes none: the file holds their hashes. A node reads the world's images and runs a model's code, so whoever takes it
over shall find no key, session or password in Redis, and end none; an edge is open to the internet, and shall change
no bill.

Commands are named one by one, without categories, so that both 7.0 and 8.2 read the file alike. Redis checks each key
of each call in a script under the user who runs it, declared or not. It takes the declared ones for read and written,
so a user who runs scripts on a name needs both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_CONNECTION = ("ping", "info")
"""INFO tells how Redis keeps what it was given (`shared/redis_durability.py`), and nothing that it keeps."""


@dataclass(frozen=True, slots=True)
class RedisUser:
    """One user's rights: patterns of names, and commands.

    Attributes:
        keys, read_only: patterns of keys. channels: patterns of channels.
    """

    name: str
    keys: tuple[str, ...]
    commands: tuple[str, ...]
    read_only: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()

    def rules(self) -> list[str]:
        """As Redis reads them, for somebody who has no rights yet."""
        return [
            "resetchannels",
            *(f"&{channel}" for channel in self.channels),
            *(f"~{pattern}" for pattern in self.keys),
            *(f"%R~{pattern}" for pattern in self.read_only),
            "-@all",
            *(f"+{command}" for command in self.commands),
        ]


EDGE = RedisUser(
    name="edge",
    keys=(
        *("b3os:key:*", "b3os:key-id:*", "b3os:session:*", "b3os:device:*", "b3os:device-user-code:*"),
        *("b3os:orgs", "b3os:org:*", "b3os:users", "b3os:user:*", "b3os:user-email:*"),
    ),
    read_only=("b3os:{*}:log:*", "b3os:{*}:usage:*", "b3os:{*}:spend:*", "b3os:nodes", "b3os:node:*"),
    channels=("b3os:keys:invalidated",),
    commands=(
        *_CONNECTION,
        *("evalsha", "script|load", "multi", "exec", "publish", "subscribe", "time"),
        *("exists", "del", "expire", "get", "mget", "set"),
        *("hget", "hmget", "hgetall", "hscan", "hset", "hsetnx", "hdel", "hincrby"),
        *("sadd", "srem", "smembers"),
        *("zadd", "zrem", "zcard", "zrange", "zrevrangebylex"),
    ),
)
NODE = RedisUser(
    name="node",
    keys=("b3os:{*}:*", "b3os:limits:*", "b3os:nodes", "b3os:node:*"),
    commands=(
        *_CONNECTION,
        *("evalsha", "eval", "time"),
        *("exists", "del", "expire", "pexpire", "get", "mget", "set"),
        *("hget", "hmget", "hgetall", "hset", "hdel", "hincrby"),
        *("zadd", "zrem", "zcard", "zcount", "zscore", "zrange", "zrangebyscore", "zrangebylex", "zpopmin"),
        *("sadd", "srem", "smembers", "xadd"),
    ),
)
_EVERYTHING = ("&*", "~*", "+@all")
# Nobody is the default user, since he is off. His rights stay whole all the same: at its start, Redis reads its own
# append-only file as him, and leaves out every transaction that he has no right to (redis#14541).
_NOBODY = ("user", "default", "off", "resetpass", *_EVERYTHING)


def render_acl(passwords: Mapping[RedisUser, Sequence[str]], operator: Sequence[str] = ()) -> str:
    """The whole ACL file.

    Args:
        passwords: by user; with two, both count, so that one can take the other's place.
        operator: passwords of the user `operator`, who may do everything; without any there is none, and nobody can
            change the ACL of a running Redis.
    """
    lines = [_NOBODY, *(_line(user.name, passwords[user], user.rules()) for user in (EDGE, NODE))]
    if operator:
        lines.append(_line("operator", operator, _EVERYTHING))
    return "".join(" ".join(line) + "\n" for line in lines)


def _line(name: str, passwords: Sequence[str], rules: Iterable[str]) -> tuple[str, ...]:
    return ("user", name, "on", *(f"#{_hash(password)}" for password in passwords), *rules)


def _hash(password: str) -> str:
    """One round is enough for random passwords; Redis knows no other."""
    return hashlib.sha256(password.encode()).hexdigest()
