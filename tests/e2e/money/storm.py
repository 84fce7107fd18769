"""`make chaos`, or `python -m tests.e2e.money.storm [--seconds 120] [--seed 1]`: random clients, random deaths.

Decides what happens when, from the seed. What may happen is in troubles.py, and what it must come to in verdict.py.
The table at the end is to have 0 behind `unaccounted`, `held`, `leases` and `in spools`; the exit code tells whether
the first is so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.money.audit import Loose, read_loose, settled_books
from tests.e2e.money.client import Call, Tenant, endless, ticks, words
from tests.e2e.money.service import Service, running_service, until
from tests.e2e.money.troubles import TROUBLES
from tests.e2e.money.verdict import CAP_NANO_USD, PER_MINUTE, Account, Verdict
from tests.e2e.money.wires import NotPermitted, Wires, laid_wires

SETTLED_WITHIN_S = 300.0
REAL_WITHIN_S = 300.0
CLIENTS = 24
REAL = 0.1
"""Of the requests, for the node with a real engine."""
MAKERS = 2
"""Of trouble: so many at a time."""
NODES = 3
EDGE_SETTINGS = {"B3OS_EDGE_HEAD_S": "50", "B3OS_EDGE_CHUNK_S": "50"}
"""Longer than any trouble but a node's that is gone without a word: what waits for it must end."""


@dataclass(slots=True)
class Storm:
    """One of them.

    Attributes:
        troubles: what may happen, as often as it is named.
        done: how often each did.
        self_ended: parts that ended without being killed.
    """

    service: Service
    rng: random.Random
    seconds: float
    troubles: Sequence[str] = tuple(TROUBLES)
    accounts: list[Account] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    self_ended: list[str] = field(default_factory=list)
    _in_trouble: set[str] = field(default_factory=set)
    _deck: list[str] = field(default_factory=list)

    async def rage(self) -> list[Tenant]:
        """Until the time is over and every call has ended; all runs again then."""
        tenants = [
            await Tenant.made(self.service),
            await Tenant.made(self.service, requests_per_minute=PER_MINUTE, concurrent_requests=6),
            await Tenant.made(self.service, cap_nano_usd=CAP_NANO_USD, tokens_per_minute=100_000),
        ]
        until_s = time.monotonic() + self.seconds
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(self._ask_on(tenants, until_s))
            async with asyncio.TaskGroup() as makers:
                for _ in range(MAKERS):
                    makers.create_task(self._trouble_on(until_s))
            await self.service.heal()
        return tenants

    async def _trouble_on(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            await asyncio.sleep(self.rng.uniform(0.5, 4))
            self._look()
            await self._make(self._draw())

    def _look(self) -> None:
        for part in (self.service.store, *self.service.parts()):
            if not part.is_alive and part.name not in self._in_trouble:
                self.self_ended.append(part.name)
                part.start()

    def _draw(self) -> str:
        """Each as often as the others."""
        if not self._deck:
            self._deck = self.rng.sample(self.troubles, len(self.troubles))
        return self._deck.pop()

    async def _make(self, name: str) -> None:
        """Later, if everybody whom it may befall is in trouble already."""
        trouble = TROUBLES[name]
        free = [part for part in trouble.whom(self.service) if part.name not in self._in_trouble]
        if not free:
            self._deck.insert(0, name)
            return
        part = self.rng.choice(free)
        self._in_trouble.add(part.name)
        self.done[name] += 1
        try:
            await trouble.act(self.service, part, self.rng)
        finally:
            self._in_trouble.discard(part.name)

    async def _ask_on(self, tenants: list[Tenant], until_s: float) -> None:
        while time.monotonic() < until_s:
            account = self._choose(self.rng.choice(tenants))
            self.accounts.append(account)
            await _make_call(account, self.rng.uniform(0, 0.5))
            await asyncio.sleep(self.rng.uniform(0, 0.3))

    def _choose(self, tenant: Tenant) -> Account:
        rng = self.rng
        count = rng.randint(1, 40)
        if self.service.more and rng.random() < REAL:
            return self._choose_real(tenant, count)
        edge = rng.choice(self.service.edges)

        def call(script: list[Any], **fields: Any) -> Call:
            return tenant.call(script, edge=edge, **fields)

        choices: list[Callable[[], Account]] = [
            lambda: Account(call(words(count))),
            lambda: Account(call(words(count), stream=False)),
            lambda: Account(call(ticks(rng.uniform(0.2, 4), 0.1))),
            lambda: Account(call(ticks(rng.uniform(0.2, 2), 0.1), stream=False)),
            lambda: Account(call(endless(count)), rng.randint(1, count)),
            lambda: Account(call(endless(count), stop_sequences=[f"w{count - 1}"])),
            lambda: Account(call([*words(count), ["fail"]], stream=rng.random() < 0.7)),
            lambda: Account(call([*words(count), ["crash"]], stream=rng.random() < 0.7)),
            lambda: Account(call([["pause", 0.3], *words(count)]), 0),
            lambda: Account(call(words(1), max_tokens=0)),
        ]
        return rng.choice(choices)()

    def _choose_real(self, tenant: Tenant, count: int) -> Account:
        """Of the model that counts."""
        messages = [{"role": "user", "content": f"Count from 1 to {count}"}]
        facts = {"model": "b3os/tiny-vision", "messages": messages, "max_tokens": 4 * count}
        call = tenant.call([], edge=self.service.more[1], stream=self.rng.random() < 0.7, **facts)
        is_patient = not call.body["stream"] or self.rng.random() < 0.6
        return Account(call, None if is_patient else self.rng.randint(1, count))


async def _make_call(account: Account, leave_after_s: float) -> None:
    """To its end, or as far as the caller's patience goes; without any, he leaves at a time of his own."""
    call = account.call
    if account.patience == 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(leave_after_s):
                await call.begin()
                await call.read()
    else:
        await call.begin()
        await call.read(account.patience)
    call.leave()


async def judge(storm: Storm, tenants: list[Tenant]) -> tuple[Verdict, Loose]:
    """After the storm: everything settles by itself, and the books agree."""
    verdict = Verdict()
    all_books = []
    for tenant in tenants:
        all_books.append(await settled_books(tenant, SETTLED_WITHIN_S))
        verdict.read([each for each in storm.accounts if each.call.tenant is tenant], all_books[-1])
    verdict.check_limits(*all_books[1:])
    verdict.unaccounted += [f"{name} ended by itself" for name in storm.self_ended]
    loose = [await read_loose(tenant) for tenant in tenants]
    return verdict, max(loose, key=lambda each: each.leases + each.held)


def logged_errors(home: Path) -> Counter[str]:
    """Messages of level error in all logs."""
    found: Counter[str] = Counter()
    for log in (home / "logs").glob("[en]*.log"):
        for line in log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, AttributeError):
                entry = json.loads(line)
                if str(entry.get("level", "")).lower() in ("error", "critical"):
                    found[f"{log.stem[0]}: {entry.get('message', entry.get('msg'))}"] += 1
    return found


def render(storm: Storm, verdict: Verdict, loose: Loose, settled_s: float, not_run: Sequence[str] = ()) -> str:
    """The table."""
    rows: list[tuple[str, object]] = [
        *((f"trouble: {name}", storm.done[name]) for name in TROUBLES if name in storm.troubles),
        *((f"trouble: {name}", "not run") for name in not_run),
        ("requests sent", verdict.sent),
        ("answered", verdict.answered),
        ("ended by an error event", verdict.failed),
        ("left by their callers", verdict.left),
        ("cut with an edge", verdict.cut),
        ("no answer at all", verdict.unheard),
        *((f"refused: {kind}", count) for kind, count in sorted(verdict.refused.items())),
        ("billed once", verdict.billed_once),
        ("of them by a sweeper", verdict.abandoned),
        ("of them amended by the node", verdict.amended),
        ("tokens of killed nodes, told too late", verdict.late_tokens),
        ("calls of killed nodes, never told of", verdict.untold),
        ("billed, and lost with its node", verdict.undelivered),
        ("unaccounted", len(verdict.unaccounted)),
        ("held", loose.held),
        ("leases", loose.leases),
        ("in spools", loose.spooled),
        ("running", loose.running),
        ("seconds until settled", round(settled_s, 1)),
    ]
    return "\n".join(f"{name:44}{value:>8}" for name, value in rows)


async def run(
    seconds: float, seed: int, home: Path, troubles: Sequence[str], wires: Sequence[Wires], *, real: bool
) -> int:
    """One storm, and its table; the number of what is unaccounted."""
    possible = [name for name in troubles if wires or not TROUBLES[name].cuts]
    not_run = [name for name in troubles if name not in possible]
    async with running_service(
        home, nodes=NODES, real=real, wires=wires, edge_settings=EDGE_SETTINGS, served={}
    ) as service:
        if real:
            await until(lambda: service.is_ready(service.more[0]), "the real engine is ready", REAL_WITHIN_S)
        storm = Storm(service, random.Random(seed), seconds, possible)
        tenants = await storm.rage()
        over_s = time.monotonic()
        verdict, loose = await judge(storm, tenants)
        print(render(storm, verdict, loose, time.monotonic() - over_s, not_run))
        for sentence in verdict.unaccounted[:20]:
            print(sentence)
        for message, count in logged_errors(home).most_common():
            print(f"logged {count:6} {message}")
        return len(verdict.unaccounted)


def main() -> None:
    """The exit code tells whether all is accounted for."""
    parser = argparse.ArgumentParser(
        description="Random clients, while nodes, edges, engines and Redis die at random."
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--troubles", nargs="+", choices=sorted(TROUBLES), default=list(TROUBLES), metavar="NAME")
    parser.add_argument("--scripted", action="store_true", help="Without the node that has a real engine.")
    parser.add_argument("--home", type=Path, help="A new folder that stays, with the logs.")
    options = parser.parse_args()
    troubles = [name for name in options.troubles if not (options.scripted and name.startswith("core "))]
    with contextlib.ExitStack() as stack:
        folder = options.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storm-")))
        wires: Sequence[Wires] = ()
        if any(TROUBLES[name].cuts for name in troubles):
            try:
                wires = stack.enter_context(laid_wires(NODES))
            except NotPermitted as error:
                print(f"No link will be cut: {error}.")
        work = run(options.seconds, options.seed, folder, troubles, wires, real=not options.scripted)
        sys.exit(min(1, asyncio.run(work)))


if __name__ == "__main__":
    main()
