"""The steps of a start, in order, and what ends a session.

Must not know how processes are kept (crew.py), what is asked of them (probes.py), nor what is shown (snippets.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from shared.cli.dev.crew import Child, Crew
from shared.cli.dev.errors import DevError, parse_reason
from shared.cli.dev.files import check_ports, check_space, locked, write_private
from shared.cli.dev.plan import HOST, Plan, environment_of
from shared.cli.dev.probes import fetch_readiness, is_key_accepted, read_kept_key, redis_answers
from shared.cli.dev.redis_server import prepare_redis
from shared.cli.dev.snippets import Facts, render_welcome

PROCESS_UP_WITHIN_S = 60.0
# Loading a model of many gigabytes from a slow disk, or fetching it, takes long; a dead or failed node ends the wait.
MODEL_READY_WITHIN_S = 3600.0
_STILL_WAITING_EVERY_S = 15.0
_PARENT_POLL_S = 0.5

Say = Callable[[str], None]
T = TypeVar("T")


async def run_session(plan: Plan, environ: Mapping[str, str], say: Say, *, with_parent: bool) -> None:
    """Bring all up, stay until a signal, and leave nothing running.

    Raises:
        DevError: it can't start, or a part has died. OSError: the state folder can't be used.
    """
    plan.home.mkdir(parents=True, exist_ok=True)
    with locked(plan.home) as lock_fd:
        check_space(plan.home)
        check_ports(HOST, plan.ports())
        async with Crew(environ, lock_fd) as crew:
            stop = _stop_on_signals(crew, say)
            watches = [crew.first_death_told(), crew.guardian_death(), _until_set(stop)]
            if with_parent:
                watches.append(_parents_end(os.getppid()))
            await _first_of(Startup(plan, crew, say).run(), *watches)


def _stop_on_signals(crew: Crew, say: Say) -> asyncio.Event:
    """The first SIGINT, SIGTERM or SIGHUP sets the event; one more kills at once."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            crew.kill()
        else:
            say("stopping; once more to kill at once")
            stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup asks for that
            loop.add_signal_handler(number, on_signal)
    return stop


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Wait for the first to end, cancel the others, and raise what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _until_set(event: asyncio.Event) -> None:
    await event.wait()


async def _parents_end(parent: int) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel sets no Event
        await asyncio.sleep(_PARENT_POLL_S)


@dataclass(frozen=True, slots=True)
class Startup:
    """One start: each step says when it is done and how many seconds it took."""

    plan: Plan
    crew: Crew
    say: Say

    async def run(self) -> None:
        """All steps; then wait for ever."""
        begun_s = time.monotonic()
        plan = self.plan
        prepared = prepare_redis(plan.home / "redis", plan.redis_port)
        self.crew.add_environment(environment_of(plan, prepared.edge_url))
        if plan.engine == "vllm":
            await self._step("model files", self._prepare_model())
        await self._step("signing keys", self._make_keys())
        redis = await self.crew.start("redis", prepared.command, plan.log("redis"), stop_within_s=10)
        await self._step("Redis", self._until(lambda: redis_answers(prepared.edge_url), redis))
        # While it loads a model it can't be interrupted and holds no work: there is nothing to wait for.
        node = await self._server("node", prepared.node_url, stop_within_s=1, hidden=("B3OS_EDGE_",))
        edge = await self._server("edge", prepared.edge_url, stop_within_s=10, hidden=("B3OS_NODE_", "B3OS_MODEL"))
        async with aiohttp.ClientSession() as http:
            await self._step("edge", self._until(lambda: _answers(http, plan.edge_operator_url), edge))
            key = await self._step("key", self._find_or_make_key(http))
            model = await self._step("model", self._wait_for_model(http, node))
            node.stop_within_s = 15
            await self._step("edge to node", self._until(lambda: _is_ready(http, plan.edge_operator_url), edge))
        self._finish(key, model, prepared.edge_url, time.monotonic() - begun_s)
        await asyncio.Event().wait()

    async def _step(self, name: str, work: Awaitable[T]) -> T:
        begun_s = time.monotonic()
        result = await work
        self.say(f"  {name:14} ready  {time.monotonic() - begun_s:5.1f} s")
        return result

    async def _until(self, is_so: Callable[[], Awaitable[bool]], child: Child) -> None:
        deadline_s = time.monotonic() + PROCESS_UP_WITHIN_S
        while not await is_so():
            if time.monotonic() > deadline_s:
                raise DevError(
                    f"the {child.name} is not ready after {PROCESS_UP_WITHIN_S:.0f} s; its log: {child.log}"
                )
            await asyncio.sleep(0.05)

    async def _prepare_model(self) -> None:
        named = () if self.plan.model is None else ("--model", self.plan.model)
        await self.crew.run("node", "models", "prepare", *named, quiet=False)

    async def _make_keys(self) -> None:
        private, public = self.plan.private_key, self.plan.public_keys
        if not (private.exists() and public.exists()):
            private.parent.mkdir(exist_ok=True, mode=0o700)
            await self.crew.run("edge", "keygen", "--private", str(private), "--public", str(public))

    async def _server(self, name: str, redis_url: str, *, stop_within_s: float, hidden: tuple[str, ...]) -> Child:
        """Each side has a user of its own in Redis."""
        command, log, own = [sys.executable, "-m", name], self.plan.log(name), {"B3OS_REDIS_URL": redis_url}
        return await self.crew.start(name, command, log, stop_within_s=stop_within_s, hidden=hidden, own=own)

    async def _find_or_make_key(self, http: aiohttp.ClientSession) -> str:
        kept = read_kept_key(self.plan.facts_file)
        if kept is not None and await is_key_accepted(http, self.plan.base_url, kept):
            return kept
        names = ("--org", "dev", "--project", "default", "--name", "dev")
        made = await self.crew.run("admin", "keys", "create", *names, "--create-missing", "--json")
        return str(json.loads(made)["key"])

    async def _wait_for_model(self, http: aiohttp.ClientSession, node: Child) -> str:
        """The served id, once the node takes requests; a line now and then meanwhile."""
        begun_s = told_s = time.monotonic()
        while True:
            status, facts = await fetch_readiness(http, self.plan.node_operator_url)
            now_s = time.monotonic()
            if status == 200:
                return str(facts["model"])
            if facts.get("state") in ("restarting", "failed"):  # once is enough here
                reason = parse_reason(node.own_log()) or "no reason given"
                raise DevError(f"the model can't be loaded: {reason} (the node's log: {node.log})")
            if now_s - begun_s > MODEL_READY_WITHIN_S:
                raise DevError(
                    f"the model is not ready after {MODEL_READY_WITHIN_S:.0f} s; the node's log: {node.log}"
                )
            if now_s - told_s > _STILL_WAITING_EVERY_S:
                told_s = now_s
                self.say(f"  model          {facts.get('state', 'starting')}, {now_s - begun_s:.0f} s so far")
            await asyncio.sleep(0.1)

    def _finish(self, key: str, model: str, redis_url: str, took_s: float) -> None:
        plan = self.plan
        facts = Facts(
            base_url=plan.base_url,
            api_key=key,
            model=model,
            edge_url=plan.edge_url,
            node_url=plan.node_url,
            redis_url=redis_url,
            edge_operator_url=plan.edge_operator_url,
            node_operator_url=plan.node_operator_url,
        )
        write_private(plan.facts_file, json.dumps(facts.as_json(), indent=2) + "\n")
        self.say(f"ready after {took_s:.1f} s; the same in {plan.facts_file}\n")
        self.say(f"{render_welcome(facts, sys.executable)}\n\nCtrl-C stops it")


async def _answers(http: aiohttp.ClientSession, operator_url: str) -> bool:
    return (await fetch_readiness(http, operator_url))[0] != 0


async def _is_ready(http: aiohttp.ClientSession, operator_url: str) -> bool:
    return (await fetch_readiness(http, operator_url))[0] == 200
