"""A breeze: the storm itself is long, and `make chaos` makes it."""

from __future__ import annotations

import random

from tests.e2e.money.audit import Loose
from tests.e2e.money.service import Service
from tests.e2e.money.storm import Storm, judge

TROUBLES = ("edge killed", "edge stopped", "edge frozen", "node stopped", "node frozen")
"""Those after which all settles without a sweeper, who waits for half a minute."""


async def test_nothing_is_unaccounted_when_parts_die_at_random(service: Service) -> None:
    storm = Storm(service, random.Random(7), 6, troubles=TROUBLES)
    verdict, loose = await judge(storm, await storm.rage())
    assert verdict.unaccounted == []
    assert loose == Loose(0, 0, 0, 0, 0)
    assert storm.done.total() >= 2
    assert verdict.sent > verdict.answered > 0
    assert verdict.billed_once > 0
