"""Claude Code, whole and unchanged, against the whole service: `python -m tests.clients.claude_code_loop CLAUDE`.

CLAUDE is the program (docs/claude-code.md says where it comes from). Starts a service of its own with scripted
answers, stands between both as a proxy that takes notes, and prints a line for each loop. Every request must get a
200, none may be sent twice, and each loop must end with the words that its script ends with. Not part of the suite:
the program is big, and not ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.e2e.stack import DevCommand, DevStack, running_dev

ENDS_WITHIN_S = 120
LAST_WORDS = "That is all."
MODES: dict[str, dict[str, str]] = {
    "default": {},
    "no experimental betas": {"CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1"},
}
_HOP_BY_HOP = {"transfer-encoding", "content-length", "connection", "host"}

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)
Turn = list[Any]
Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Loop:
    """A prompt, and what must be seen in the last request.

    Attributes:
        refused: requests that get a 400, after which it goes on without what they held.
        only: the one mode in which Claude Code has what this needs.
    """

    name: str
    turns: Sequence[Turn]
    shows: Callable[[Body], bool] = lambda body: True
    refused: int = 0
    only: str | None = None

    def prompt(self) -> str:
        """A script, as a user would type it."""
        return json.dumps({"turns": [*self.turns, [["text", LAST_WORDS]]]})


@dataclass(slots=True)
class Note:
    """One request and what became of it."""

    path: str
    body: Body
    status: int = 0


@dataclass(slots=True)
class Proxy:
    """Passes everything on, and takes notes."""

    target: str
    notes: list[Note] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        note = Note(request.path_qs, json.loads(data) if data else {})
        self.notes.append(note)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, self.target + request.path_qs, data=data, headers=headers) as answer,
        ):
            note.status = answer.status
            self.ignored.update(filter(None, answer.headers.get("x-b3os-ignored", "").split(", ")))
            passed = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
        return response


def png(red: int, green: int, blue: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    side = 32
    rows = (b"\0" + bytes((red, green, blue)) * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def bash(command: str) -> Turn:
    """A call of the shell."""
    return ["tool", "Bash", {"command": command, "description": "Do it"}]


def read(path: str) -> Turn:
    """A call that reads a file."""
    return ["tool", "Read", {"file_path": path}]


def blocks(body: Body, kind: str) -> list[Body]:
    """All blocks of a kind in a conversation, those inside tool results too."""
    found: list[Body] = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            inner = block.get("content")
            found += [part for part in (block, *(inner if isinstance(inner, list) else ())) if part["type"] == kind]
    return found


def has_results(count: int, *, errors: int = 0) -> Callable[[Body], bool]:
    """So many results, so many of them errors."""

    def shows(body: Body) -> bool:
        results = blocks(body, "tool_result")
        return (len(results), sum(bool(result.get("is_error")) for result in results)) == (count, errors)

    return shows


AGENT = {
    "description": "Ask",
    "prompt": json.dumps({"turns": [[bash("echo hi")], [["text", "The agent's answer."]]]}),
    "subagent_type": "general-purpose",
}
LOOPS = [
    Loop("words only", []),
    Loop("a call", [[["text", "I'll look."], bash("echo hi")]], has_results(1)),
    Loop(
        "thinking",
        [[["thinking", "Let me see."], ["text", "Yes."], bash("echo hi")], [["thinking", "Again."], bash("echo ho")]],
        lambda body: [bool(block["signature"]) for block in blocks(body, "thinking")] == [True, True],
    ),
    Loop("a result that is an error", [[bash("echo no >&2; exit 3")]], has_results(1, errors=1)),
    Loop("three calls at once", [[["text", "All."], bash("echo 1"), bash("echo 2"), bash("echo 3")]], has_results(3)),
    Loop(
        "a picture",
        [[read("{work}/red.png")]],
        lambda body: len(blocks(body, "image")) == 1,
    ),
    Loop("a damaged picture", [[read("{work}/cut.png")]], lambda body: not blocks(body, "image"), refused=1),
    Loop("a document", [[read("{work}/a.pdf")]], lambda body: not blocks(body, "document"), refused=1),
    Loop(
        "a file written and edited",
        [
            [["tool", "Write", {"file_path": "{work}/new.txt", "content": "one\n" * 300}]],
            [["tool", "Edit", {"file_path": "{work}/new.txt", "old_string": "one\n" * 300, "new_string": "two\n"}]],
            [read("{work}/new.txt")],
        ],
        has_results(3),
    ),
    Loop(
        "a deferred tool",
        [[["tool", "ToolSearch", {"query": "select:CronList", "max_results": 3}]], [["tool", "CronList", {}]]],
        lambda body: len(blocks(body, "tool_reference")) == 1 and has_results(2)(body),
        only="default",
    ),
    # It works in the background: the first last words only wait for it.
    Loop("an agent of its own", [[["tool", "Agent", AGENT]], [["text", LAST_WORDS]]]),
    Loop("silence", [[["text", "Wait."], ["pause", 11], bash("echo hi")]], has_results(1)),
    Loop("a call cut by max_tokens", [[["text", "I'll look."], ["cut", "Bash", '{"command": "touch cut']]]),
]


async def main(claude: str) -> bool:
    """Run all loops in all modes."""
    with tempfile.TemporaryDirectory() as folder, running_dev(DevCommand(Path(folder) / "home")) as stack:
        async with proxied(stack) as (proxy, base_url):
            well = True
            for mode, variables in MODES.items():
                for loop in LOOPS:
                    if loop.only in (None, mode):
                        home = Path(tempfile.mkdtemp(dir=folder))
                        environment = environment_of(home, base_url, stack.api_key) | variables
                        well &= await run(claude, loop, mode, home, environment, proxy)
            print("accepted and ignored:", *sorted(proxy.ignored))
    return well


@asynccontextmanager
async def proxied(stack: DevStack) -> AsyncIterator[tuple[Proxy, str]]:
    """The proxy, and the base URL that leads through it."""
    proxy = Proxy(stack.edge_url)
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield proxy, stack.base_url.replace(stack.edge_url, f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()


def environment_of(home: Path, base_url: str, key: str) -> dict[str, str]:
    """What docs/claude-code.md says, and nothing from around: the user's own set-up stays out of it."""
    model = "b3os/scripted"
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_AUTH_TOKEN": key,
        "ANTHROPIC_MODEL": model,
        **{f"ANTHROPIC_DEFAULT_{size}_MODEL": model for size in ("OPUS", "SONNET", "HAIKU")},
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",  # lets root leave the permissions out
    }


async def run(claude: str, loop: Loop, mode: str, home: Path, environment: dict[str, str], proxy: Proxy) -> bool:
    """One loop; prints its line, and its faults if it has any."""
    work = home / "work"
    work.mkdir()
    (work / "red.png").write_bytes(png(255, 0, 0))
    (work / "cut.png").write_bytes(png(255, 0, 0)[:60])
    (work / "a.pdf").write_bytes(PDF)
    proxy.notes.clear()
    options = ["--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
    process = await asyncio.create_subprocess_exec(
        claude,
        *("-p", loop.prompt().replace("{work}", str(work)), *options),
        cwd=work,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        said, complained = await asyncio.wait_for(process.communicate(), ENDS_WITHIN_S)
    except TimeoutError:
        process.kill()
        said, complained = await process.communicate()
    events = [json.loads(line) for line in said.decode().splitlines() if line.startswith("{")]
    faults = list(find_faults(loop, events, proxy.notes))
    verdict = "FAIL" if faults else "ok"
    print(f"{verdict:4} {mode:21} {loop.name:25} {len(proxy.notes)} requests, {len(faults)} faults")
    for fault in faults:
        print("     ", fault)
    if faults:
        print("     ", complained.decode()[-500:])
    return not faults


def find_faults(loop: Loop, events: list[Body], notes: list[Note]) -> Iterator[str]:
    """All that went wrong."""
    statuses = [note.status for note in notes]
    if sorted(statuses) != [200] * (len(notes) - loop.refused) + [400] * loop.refused:
        yield f"statuses {statuses}"
    yield from (f"sent twice: {note.path}" for place, note in enumerate(notes) if note in notes[:place])
    result = events[-1] if events else {}
    if (result.get("type"), result.get("is_error"), result.get("result")) != ("result", False, LAST_WORDS):
        yield f"ended with {json.dumps(result)[:500]}"
    if not notes or not loop.shows(notes[-1].body):
        yield "the last request doesn't show what it should"


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(sys.argv[1])))
