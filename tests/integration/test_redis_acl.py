"""What each user of Redis may do, tried on a real server that holds the real things."""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from click.testing import CliRunner
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from edge.auth import redis_names
from edge.auth.accounts import RedisAccounts, User
from edge.auth.device import Asking, RedisDevices
from edge.auth.device import digest_of as device_digest
from edge.auth.key_store import RedisKeyStore
from edge.auth.sessions import Place, RedisSessions, digest_of
from node.limits import names
from node.limits.limiter import Hold, Limits, Needs, Settled, SpendCap
from shared import org_keys
from shared.cli.dev.redis_server import acl_file, find_redis_server, prepare_redis
from shared.cli.redis_acl import redis_acl
from shared.org_keys import record_ids_key, record_key, refused_ids_key, refused_key, spend_key, usage_key
from shared.redis import connect_redis
from shared.redis_acl import EDGE, NODE, RedisUser
from shared.request_log import RequestRecord
from tests.integration.edge.parts import make_key
from tests.integration.limits.parts import World, bill, hold_of, world_on
from tests.redis_server import as_user, free_port, prepare, url_of, wait_until_up

ROOT = Path(__file__).parents[2]
MONTH = "2026-11"


@pytest.fixture(scope="module")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of our own: here things are denied on purpose."""
    port, folder = free_port(), tmp_path_factory.mktemp("guarded")
    process = subprocess.Popen(prepare(folder, port), stdout=subprocess.DEVNULL)
    try:
        wait_until_up(url_of("operator", port), process)
        yield url_of("node", port)
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Scene:
    """Both sides have been at work; these are the names of what they left."""

    world: World
    key: str
    key_id: str
    digest: str
    session: str
    user: str
    user_sessions: str
    device: str
    request_id: str

    @property
    def org(self) -> str:
        return self.world.org


@pytest.fixture
async def scene(guarded_url: str) -> AsyncIterator[Scene]:
    async with world_on(guarded_url) as world:
        accounts, keys = RedisAccounts(world.edge_redis), RedisKeyStore(world.edge_redis)
        user = User(f"usr_{world.org}", f"{world.org}@example.com", "Ada", "active", "$argon2id$secret", 1, 1)
        await accounts.create_user(user)
        record, credential = await make_key(keys, org=world.org)
        session = await RedisSessions(world.edge_redis, time.time).open_session(user, Place())
        assert session is not None
        codes = await RedisDevices(world.edge_redis).begin(Asking("a program", "192.0.2.1", 1))
        limits = Limits(100, 10_000, 10_000, 10)
        limiter = world.limiter()
        hold = hold_of(await limiter.admit(world.subject(limits, SpendCap(10**9, "month")), Needs(500, 5000)))
        assert isinstance(await limiter.settle(bill(hold)), Settled)
        running = hold_of(await limiter.admit(world.subject(limits), Needs(500, 5000)))
        refused = RequestRecord("req_" + "0" * 26, 1, "key_1", "main", "b3os/test", "n1", "refused")
        await limiter.log_refusal(world.org, refused)
        yield Scene(
            world,
            key=redis_names.key(credential.digest),
            key_id=redis_names.key_id(record.id),
            digest=credential.digest,
            session=redis_names.session(digest_of(session)),
            user=redis_names.user(user.id),
            user_sessions=redis_names.user_sessions(user.id),
            device=redis_names.device(device_digest(codes.device_code)),
            request_id=running.subject.request_id,
        )


Command = tuple[str | int, ...]
READ_BY_SCRIPT = "return redis.call('HGETALL', ARGV[1])"
REVOKE_BY_SCRIPT = "return redis.call('HSET', ARGV[1], 'status', 'revoked')"

OF_A_NODE: dict[str, Callable[[Scene], Command]] = {
    "a key": lambda scene: ("HGETALL", scene.key),
    "a field of a key": lambda scene: ("HGET", scene.key, "status"),
    "that there is a key": lambda scene: ("EXISTS", scene.key),
    "a key by its id": lambda scene: ("GET", scene.key_id),
    "a key in a script that declares it": lambda scene: ("EVAL", READ_BY_SCRIPT, 1, scene.key, scene.key),
    "a key in a script that does not": lambda scene: ("EVAL", READ_BY_SCRIPT, 0, scene.key),
    "a session": lambda scene: ("HGETALL", scene.session),
    "the sessions of a user": lambda scene: ("ZRANGE", scene.user_sessions, 0, -1),
    "a password's hash": lambda scene: ("HGET", scene.user, "password"),
    "a password's hash in a script": lambda scene: ("EVAL", READ_BY_SCRIPT, 0, scene.user),
    "a device that waits": lambda scene: ("HGETALL", scene.device),
    "organizations": lambda scene: ("EXISTS", redis_names.org(scene.org)),
    "a revocation": lambda scene: ("HSET", scene.key, "status", "revoked"),
    "a revocation in a script": lambda scene: ("EVAL", REVOKE_BY_SCRIPT, 0, scene.key),
    "a key's end": lambda scene: ("DEL", scene.key),
    "a session's end": lambda scene: ("EXPIRE", scene.session, 0),
    "a new key": lambda scene: ("HSET", redis_names.key("0" * 64), "status", "active"),
    "another password": lambda scene: ("HSET", scene.user, "password", "x"),
    "news of a revocation": lambda scene: ("PUBLISH", redis_names.INVALIDATIONS, scene.digest),
    "news in a script": lambda scene: ("EVAL", "redis.call('PUBLISH', ARGV[1], '*')", 0, redis_names.INVALIDATIONS),
    "to hear of revocations": lambda scene: ("SUBSCRIBE", redis_names.INVALIDATIONS),
    "to hear of everything": lambda scene: ("PSUBSCRIBE", "*"),
}
OF_AN_EDGE: dict[str, Callable[[Scene], Command]] = {
    "an entry of the ledger": lambda scene: ("XADD", names.ledger_key(scene.org, MONTH), "*", "a", "b"),
    "an entry in a script": lambda scene: (
        *("EVAL", "redis.call('XADD', KEYS[1], '*', 'a', 'b')", 1),
        names.ledger_key(scene.org, MONTH),
    ),
    "no ledger": lambda scene: ("DEL", names.ledger_key(scene.org, MONTH)),
    "a meter": lambda scene: ("HINCRBY", names.meter_key(scene.world.subject(), "tokens"), "1", "-1"),
    "no meter": lambda scene: ("DEL", names.meter_key(scene.world.subject(), "tokens")),
    "what a meter says": lambda scene: ("HGETALL", names.meter_key(scene.world.subject(), "tokens")),
    "a lease": lambda scene: ("ZADD", names.leases_key(scene.org), 1, "x"),
    "no lease": lambda scene: ("ZREM", names.leases_key(scene.org), scene.request_id),
    "a reservation": lambda scene: ("HSET", names.reservation_key(scene.org, scene.request_id), "held", "0"),
    "that a bill was booked": lambda scene: ("SET", names.done_key(scene.org, scene.request_id), "final"),
    "what was spent": lambda scene: ("HSET", spend_key(scene.org, "key_1", MONTH), "settled", "0"),
    "what was used": lambda scene: ("HSET", usage_key(scene.org, "2026-11-30"), "a", "0"),
    "a record of the log": lambda scene: ("SET", record_key(scene.org, scene.request_id), "{}"),
    "no record of the log": lambda scene: ("DEL", record_key(scene.org, scene.request_id)),
    "no listing of the log": lambda scene: ("EXPIRE", record_ids_key(scene.org), 0),
    "the sweepers' turn": lambda scene: ("SET", names.SWEEPER, "edge"),
}
OF_NOBODY: tuple[Command, ...] = (
    *(("KEYS", "*"), ("SCAN", 0), ("RANDOMKEY",), ("DBSIZE",), ("FLUSHDB",), ("FLUSHALL",), ("MONITOR",)),
    *(("CONFIG", "GET", "*"), ("CONFIG", "SET", "appendonly", "no"), ("ACL", "LIST"), ("ACL", "WHOAMI")),
    *(("SAVE",), ("BGREWRITEAOF",), ("SHUTDOWN",), ("CLIENT", "LIST"), ("SELECT", 1)),
    *(("FUNCTION", "LIST"), ("SCRIPT", "FLUSH"), ("REPLICAOF", "127.0.0.1", 1), ("MIGRATE", "::1", 1, "x", 0, 1)),
    *(("DUMP", "b3os:orgs"), ("RENAME", "b3os:orgs", "x"), ("COPY", "b3os:orgs", "x"), ("PUBLISH", "else", "x")),
)


async def is_denied(redis: Redis, command: Command) -> bool:
    """Whether the user of this client may not."""
    try:
        await cast("Any", redis).execute_command(*command)
    except NoPermissionError:
        return True
    except ResponseError as error:  # of a script, whose call was refused; the words are 8.2's and 7.0's
        return bool(re.search("ACL failure in script|user executing the script can't", str(error)))
    return False


@pytest.mark.parametrize("what", OF_A_NODE)
async def test_a_node_gets_nothing_of_identity(scene: Scene, what: str) -> None:
    command = OF_A_NODE[what](scene)
    before = await scene.world.hash(scene.key)
    assert await is_denied(scene.world.node_redis, command)
    assert await scene.world.hash(scene.key) == before
    assert before["status"] == "active"


@pytest.mark.parametrize("what", OF_AN_EDGE)
async def test_an_edge_changes_nothing_of_a_bill(scene: Scene, what: str) -> None:
    command = OF_AN_EDGE[what](scene)
    before = await scene.world.ledger()
    assert await is_denied(scene.world.edge_redis, command)
    assert await scene.world.ledger() == before
    assert len(before) == 1


async def test_what_is_denied_to_one_is_there_and_the_other_may(scene: Scene) -> None:
    """Else a denial above would be one of a name that nobody writes."""
    subject, org = scene.world.subject(), scene.org
    edge, node = scene.world.edge_redis, scene.world.node_redis
    for name in (scene.key, scene.key_id, scene.session, scene.user, scene.user_sessions, scene.device):
        assert await edge.exists(name), name
    for name in (
        *(names.ledger_key(org, MONTH), names.meter_key(subject, "tokens"), names.leases_key(org)),
        *(names.reservation_key(org, scene.request_id), spend_key(org, "key_1", MONTH)),
        *(record_key(org, scene.request_id), record_ids_key(org), refused_ids_key(org), refused_key(org)),
    ):
        assert await node.exists(name), name


async def test_an_edge_reads_the_log_and_what_was_used_and_spent(scene: Scene) -> None:
    assert (await scene.world.spent())[0] > 0
    page = await scene.world.log.fetch_page(scene.org)
    assert {record.outcome for record in page.records} >= {"running", "finished"}


@pytest.mark.parametrize("command", OF_NOBODY, ids=lambda command: " ".join(map(str, command)))
async def test_neither_may_look_around_or_administer(scene: Scene, command: Command) -> None:
    for redis in (scene.world.edge_redis, scene.world.node_redis):
        assert await is_denied(redis, command)


async def test_nobody_is_let_in_without_a_password(scene: Scene, guarded_url: str) -> None:
    bare = guarded_url.replace(f"node:{'node' * 8}@", "")
    for url in (bare, bare.replace("://", "://:x@"), bare.replace("://", "://default:@")):
        redis = connect_redis(url)
        with pytest.raises((AuthenticationError, ResponseError)):
            await redis.get(scene.key_id)
        await redis.aclose()


# Of names that code may use, each is made by a function of one of these modules.

EXAMPLES: dict[str, Any] = {
    **dict.fromkeys(("digest", "record_id", "user_id", "user_code", "email"), "some{one}@example.com"),
    **dict.fromkeys(("name", "org"), "acme"),
    "request_id": "req_1",
    "key_id": "key_1",
    "day": "2026-11-30",
    "month": MONTH,
    "period": "month",
    "at_ms": 1,
}


def names_of(module: ModuleType, examples: dict[str, Any]) -> set[str]:
    """What every public function gives for the examples, and the constants; a new parameter needs an example."""
    found: set[str] = set()
    for name, value in vars(module).items():
        if isinstance(value, str) and not name.startswith("_") and not name.endswith("_PREFIX"):
            found.add(value)
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            wanted = inspect.signature(value).parameters.values()
            plain = [each.name for each in wanted if each.kind is not each.VAR_POSITIONAL]
            made = value(*(examples[parameter] for parameter in plain))
            found |= {made} if isinstance(made, str) else set(made)
    return {name for name in found if re.match(r"b3os:.*[^}]$", name)} - {redis_names.INVALIDATIONS}


async def may(redis: Redis, user: str, *command: str) -> bool:
    """What Redis itself says."""
    return bool(await cast("Any", redis).execute_command("ACL", "DRYRUN", user, *command) == "OK")


async def test_every_name_of_identity_is_the_edge_s_alone(scene: Scene) -> None:
    redis, found = scene.world.redis, names_of(redis_names, EXAMPLES)
    assert len(found) >= 16
    for name in found:
        assert await may(redis, "edge", "SET", name, "x"), name
        assert await may(redis, "edge", "GET", name), name
        for command in (("EXISTS", name), ("GET", name), ("SET", name, "x")):
            assert not await may(redis, "node", *command), (name, command)


async def test_every_name_of_limits_is_the_node_s_and_the_edge_reads_the_log_and_sums(scene: Scene) -> None:
    redis, subject = scene.world.redis, scene.world.subject()
    of_node = {**EXAMPLES, "subject": subject, "hold": Hold(subject, 1, "me"), "name": "tokens", "org": subject.org}
    found = names_of(names, of_node) | names_of(org_keys, of_node)
    kinds = {name.split(":")[2] for name in found if "{" in name}
    assert kinds == {"meter", "leases", "reservation", "done", "ledger", "log", "usage", "spend"}
    for name in found:
        assert await may(redis, "node", "SET", name, "x"), name
        assert await may(redis, "node", "GET", name), name
        assert not await may(redis, "edge", "SET", name, "x"), name
        is_told = bool(re.match(r"b3os:\{[^}]*\}:(log|usage|spend):", name))
        assert await may(redis, "edge", "GET", name) == is_told, name


def test_names_are_written_in_those_modules_alone() -> None:
    files = [path for part in ("edge", "node", "shared") for path in (ROOT / part).rglob("*") if path.is_file()]
    writers = {
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix in (".py", ".lua") and re.search(r"""["']b3os:[^ "']""", path.read_text())
    }
    named = {
        *("edge/auth/redis_names.py", "node/limits/names.py"),
        *("shared/heartbeat.py", "shared/org_keys.py", "shared/redis_acl.py"),
    }
    assert writers == named


USED_IN = {EDGE: ("edge",), NODE: ("node/limits",)}
READERS = {
    EDGE: ("shared/usage.py", "shared/request_log.py", "shared/heartbeat.py"),
    NODE: ("shared/heartbeat.py",),
}
OTHERWISE = {
    **dict.fromkeys(("evalsha", "script|load"), "register_script("),
    **dict.fromkeys(("multi", "exec"), "transaction=True"),
    "del": ".delete(",
}


@pytest.mark.parametrize("user", [EDGE, NODE], ids=lambda user: user.name)
def test_no_command_is_allowed_that_nothing_uses(user: RedisUser) -> None:
    """That none is missing is seen wherever tests run on a Redis with these users: it may have denied nothing."""
    paths = [
        path for folder in USED_IN[user] for suffix in ("py", "lua") for path in (ROOT / folder).rglob(f"*.{suffix}")
    ]
    paths += [ROOT / name for name in (*READERS[user], "shared/redis_durability.py")]
    text = "\n".join(path.read_text() for path in paths)
    for command in user.commands:
        ways = [f"'{command.upper()}'", f".{command}(", OTHERWISE.get(command, f".{command}(")]
        assert any(way in text for way in ways), command


# The file itself.


def test_a_folder_of_the_version_with_one_password_keeps_what_it_has(tmp_path: Path) -> None:
    import redis

    port = free_port()
    config = f"bind 127.0.0.1\nport {port}\nrequirepass old\ndir {tmp_path}\nappendonly yes\nappendfsync always\n"
    (tmp_path / "redis.conf").write_text(config + 'save ""\n')
    (tmp_path / "password").write_text("old\n")
    old_url = f"redis://:old@127.0.0.1:{port}/0"
    process = subprocess.Popen([str(find_redis_server()), str(tmp_path / "redis.conf")], stdout=subprocess.DEVNULL)
    wait_until_up(old_url, process)
    with redis.Redis.from_url(old_url) as client, client.pipeline(transaction=True) as changes:
        changes.sadd(redis_names.ORGS, "acme").hset(redis_names.org("acme"), "status", "active").execute()
        client.eval(
            "redis.call('XADD', KEYS[1], '*', 'a', 'b') redis.call('SADD', 'x', 'y')", 1, "b3os:{acme}:ledger:1"
        )
    process.send_signal(signal.SIGKILL)
    process.wait()

    prepared = prepare_redis(tmp_path, port)
    process = subprocess.Popen(prepared.command, stdout=subprocess.DEVNULL)
    try:
        wait_until_up(prepared.edge_url, process)
        with redis.Redis.from_url(prepared.edge_url, decode_responses=True) as client:
            assert client.smembers(redis_names.ORGS) == {"acme"}
            assert client.hgetall(redis_names.org("acme")) == {"status": "active"}
        with redis.Redis.from_url(prepared.node_url) as client:
            assert client.exists("b3os:{acme}:ledger:1")
        with redis.Redis.from_url(old_url) as client, pytest.raises(AuthenticationError):
            client.ping()
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "password").exists()


async def test_the_printed_file_lets_two_passwords_in_during_a_change(scene: Scene, tmp_path: Path) -> None:
    config: Any = await scene.world.redis.config_get("aclfile")
    loaded = Path(config["aclfile"])
    files = {user: tmp_path / user for user in ("edge", "node", "operator")}
    for user, path in files.items():
        path.write_text(user * 8 + "\n")
    files["edge"].write_text("edge" * 8 + "\n" + "new!" * 8 + "\n")
    options = [f"--{user}-password-file={path}" for user, path in files.items()]
    printed = CliRunner().invoke(redis_acl, options)
    assert printed.exit_code == 0
    assert not re.search("(edge|new!|node|operator){2}", printed.output)
    loaded.write_text(printed.output)  # noqa: ASYNC240 - a line or four
    assert await cast("Any", scene.world.redis).acl_load()
    old = as_user("edge", url_of("node", scene.world.redis.connection_pool.connection_kwargs["port"]))
    for url in (old, old.replace("edge" * 8, "new!" * 8)):
        redis = connect_redis(url)
        assert await redis.exists(scene.key)
        await redis.aclose()


def test_a_guessable_password_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("swordfish\n")
    printed = CliRunner().invoke(
        redis_acl, [f"--{user}-password-file={tmp_path / 'short'}" for user in ("edge", "node")]
    )
    assert printed.exit_code == 1
    assert "at least 32 characters" in printed.output
    assert "swordfish" not in printed.output


def test_the_embedded_server_s_file_holds_no_password(tmp_path: Path) -> None:
    prepared = prepare_redis(tmp_path, 1)
    text = acl_file(tmp_path).read_text()
    for url in (prepared.edge_url, prepared.node_url):
        assert url.split("@")[0].rpartition(":")[2] not in text
    assert text.splitlines()[0].startswith("user default off resetpass ")
    assert len(text.splitlines()) == 3
