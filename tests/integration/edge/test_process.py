"""The edge as a process of its own, and the operators' commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from edge.signing import create_key_files
from tests.integration.edge.parts import MESSAGES, SIGNING_KEY, START, STOP, WELL_WITHIN_S, FakeNode, until
from tests.redis_server import free_port

MAX_RESIDENT_BYTES = 96 << 20


class Surroundings:
    """A folder, variables, and the commands that run with them."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self.folder = folder
        self.port, self.operator_port = free_port(), free_port()
        create_key_files(folder / "private.pem", folder / "public.json")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("B3OS_")} | {
            "B3OS_REDIS_URL": redis_url,
            "B3OS_EDGE_PORT": str(self.port),
            "B3OS_EDGE_OPERATOR_PORT": str(self.operator_port),
            "B3OS_EDGE_SIGNING_KEY_FILE": str(folder / "private.pem"),
            "B3OS_EDGE_NODES": json.dumps({"n1": f"http://127.0.0.1:{free_port()}"}),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        }

    def share_signing_key(self) -> None:
        """Sign with the key that the fake node knows."""
        pem = SIGNING_KEY.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / "private.pem").write_bytes(pem)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start `b3os ARGUMENTS`."""
        command = (sys.executable, "-m", "shared.cli", *arguments)
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *command, env=self.environ, cwd=self.folder, stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def run(self, *arguments: str, text: str = "") -> tuple[int, str, str]:
        """Run `b3os ARGUMENTS` to its end with `text` as its input: exit code, standard output and error."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(WELL_WITHIN_S):
                out, err = await process.communicate(text.encode())
        finally:
            if process.returncode is None:
                process.kill()
        return await process.wait(), out.decode(), err.decode()


@pytest.fixture
def here(tmp_path: Path, edge_redis_url: str) -> Surroundings:
    return Surroundings(tmp_path, edge_redis_url)


async def is_ready(here: Surroundings) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as operator,
            operator.get(f"http://127.0.0.1:{here.operator_port}/readyz") as response,
        ):
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def is_stopping(here: Surroundings) -> bool:
    return not await is_ready(here)


async def test_the_process_serves_is_small_and_stops_on_sigterm(here: Surroundings) -> None:
    process = await here.start("edge")
    try:
        await until(lambda: is_ready(here), WELL_WITHIN_S)
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"http://127.0.0.1:{here.port}{MESSAGES}", json={}) as response,
        ):
            assert response.status == 401
        assert psutil.Process(process.pid).memory_info().rss <= MAX_RESIDENT_BYTES
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WELL_WITHIN_S):
            _, err = await process.communicate()
        assert process.returncode == 0
        assert any(json.loads(line).get("path") == MESSAGES for line in err.splitlines())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_running_stream_ends_in_peace_after_sigterm(here: Surroundings, node: FakeNode) -> None:
    may_end = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(START)
        await may_end.wait()
        await response.write(STOP)
        return response

    node.answer = answer
    here.share_signing_key()
    here.environ["B3OS_EDGE_NODES"] = json.dumps({"n1": f"http://127.0.0.1:{node.port}"})
    wanted = ("--org", "draining", "--project", "main", "--name", "test", "--create-missing", "--json")
    key = json.loads((await here.run("admin", "keys", "create", *wanted))[1])["key"]
    process = await here.start("edge")
    try:
        await until(lambda: is_ready(here), WELL_WITHIN_S)
        async with (
            aiohttp.ClientSession(headers={"x-api-key": key}) as client,
            client.post(f"http://127.0.0.1:{here.port}{MESSAGES}", json={}) as response,
        ):
            assert response.status == 200
            process.send_signal(signal.SIGTERM)
            await until(lambda: is_stopping(here), WELL_WITHIN_S)
            may_end.set()
            assert await response.read() == START + STOP
        async with asyncio.timeout(WELL_WITHIN_S):
            await process.communicate()
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def assert_one_sentence(here: Surroundings, code: int, text: str) -> None:
    returned, _, err = await here.run("edge")
    assert returned == code
    assert text in err
    assert "Traceback" not in err


async def test_a_taken_port_is_one_sentence(here: Surroundings) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", here.port)
    async with server:
        await assert_one_sentence(here, 1, f"127.0.0.1:{here.port} is already in use")


async def test_a_missing_signing_key_is_one_sentence(here: Surroundings) -> None:
    (here.folder / "private.pem").unlink()
    await assert_one_sentence(here, 1, "private.pem can't be read")


async def test_a_misspelt_setting_is_one_line(here: Surroundings) -> None:
    here.environ["B3OS_EDGE_PROT"] = "1"
    await assert_one_sentence(here, 2, "did you mean B3OS_EDGE_PORT?")


CREATE = ("admin", "keys", "create", "--org", "cli-org", "--project", "main", "--name", "laptop")


async def test_operators_create_list_and_revoke_keys(here: Surroundings) -> None:
    code, out, _ = await here.run(*CREATE, "--create-missing", "--expires-in-days", "1", "--json")
    created = json.loads(out)
    assert code == 0
    assert list(created) == ["id", "key", "org", "project", "name", "scopes", "expires_at"]
    assert created["scopes"] == ["infer:run", "models:read"]

    code, out, _ = await here.run("admin", "keys", "list", "--org", "cli-org", "--json")
    [listed] = json.loads(out)
    assert (listed["id"], listed["status"], listed["hint"]) == (created["id"], "active", created["key"][8:12])
    assert created["key"] not in out

    assert (await here.run("admin", "keys", "revoke", created["id"]))[:2] == (0, f"revoked {created['id']}\n")
    code, out, _ = await here.run("admin", "keys", "list", "--org", "cli-org")
    head, row = out.splitlines()
    assert head.split() == ["ID", "SECRET", "STATUS", "PROJECT", "SCOPES", "EXPIRES", "NAME"]
    for name, shown in (
        ("ID", created["id"]),
        ("STATUS", "revoked"),
        ("PROJECT", "cli-org/main"),
        ("NAME", "laptop"),
    ):
        assert row.startswith(shown, head.index(name))


async def test_a_key_is_printed_once_with_a_warning(here: Surroundings) -> None:
    code, out, err = await here.run(*CREATE, "--org", "shown-once", "--create-missing", "--scope", "models:read")
    assert (code, out.startswith("b3os_sk_"), out.count("\n")) == (0, True, 1)
    assert "not shown again" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("admin", "keys", "create", "--org", "nobody", "--project", "p", "--name", "n"), "no organization nobody"),
        (("admin", "keys", "revoke", "key_missing"), "no key key_missing"),
        (("edge", "keygen", "--private", "private.pem", "--public", "new.json"), "exists already"),
    ],
)
async def test_a_command_that_fails_says_why_in_one_sentence(
    here: Surroundings, arguments: tuple[str, ...], text: str
) -> None:
    code, _, err = await here.run(*arguments)
    assert (code, err.count("\n")) == (1, 1)
    assert text in err


async def test_commands_without_redis_say_so_and_tell_no_password(here: Surroundings) -> None:
    here.environ["B3OS_REDIS_URL"] = f"redis://:secret@127.0.0.1:{free_port()}/0"
    code, _, err = await here.run("admin", "keys", "list")
    assert (code, err.count("\n"), "secret" in err) == (1, 1, False)


async def test_an_idle_connection_is_kept_as_long_as_the_setting_says(here: Surroundings) -> None:
    here.environ["B3OS_EDGE_KEEPALIVE_S"] = "0.5"
    process = await here.start("edge")
    try:
        await until(lambda: is_ready(here), WELL_WITHIN_S)
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(b"HEAD /v1/infer HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(40):  # the default is 75
            assert await reader.read() == b""
        writer.close()
    finally:
        process.kill()
        await process.communicate()
