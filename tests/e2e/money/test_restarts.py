"""A real engine core that is killed twice: the node answers again, and holds no more than before."""

from __future__ import annotations

import signal

from tests.bench.restarts import count_to_five, kill_and_come_back
from tests.e2e.money.client import Tenant
from tests.e2e.money.service import Part, Service

SOME_MIB = 60
"""What a new engine may take more, of memory that comes and goes. Twenty rounds tell leaks (docs/operations.md)."""


async def test_an_engine_that_is_killed_comes_back_and_leaves_nothing(
    service: Service, tenant: Tenant, real_edge: Part
) -> None:
    right = (await count_to_five(tenant, real_edge)).text
    first = await kill_and_come_back(service, tenant)
    second = await kill_and_come_back(service, tenant)
    assert first.text == second.text == right
    assert first.refused > 0
    assert first.told_s >= 1
    before, after = first.weight, second.weight
    assert after.fds - before.fds <= 2  # connections come and go; of an engine there are nine
    assert after.threads - before.threads <= 1
    assert (after.children, after.zombies) == (before.children, 0)
    assert after.rss_mib - before.rss_mib < SOME_MIB


async def test_an_engine_that_stands_still_is_replaced(service: Service, tenant: Tenant, real_edge: Part) -> None:
    right = (await count_to_five(tenant, real_edge)).text
    stopped = await kill_and_come_back(service, tenant, signal.SIGSTOP)
    assert stopped.text == right
    assert stopped.weight.zombies == 0
