"""What an edge's log tells of its life, read from a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
from importlib.metadata import version
from typing import Any

from tests.integration.edge.parts import START, FakeNode
from tests.integration.edge.test_departures import running_edge, say_little
from tests.integration.edge.test_process import Surroundings, here

__all__ = ["here"]


async def last_words(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    """Its lines of its life, once it has ended well."""
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    assert process.returncode == 0
    lines = [json.loads(line) for line in err.splitlines()]
    assert lines[-1]["message"] == "stopped"
    return [line for line in lines if line["logger"] == "b3os.life"]


async def test_three_lines_tell_where_it_listens_what_ended_it_and_what_it_cut(
    here: Surroundings, node: FakeNode
) -> None:
    node.answer = say_little
    async with running_edge(here, node, B3OS_EDGE_DRAIN_S="0.25", B3OS_EDGE_LAME_DUCK_S="0.5") as edge:
        streams = [await edge.post(), await edge.post()]
        edge.terminate()
        assert all([(await stream.read()).startswith(START) for stream in streams])
        started, stopping, stopped = await last_words(edge.process)
    assert {line["level"] for line in (started, stopping, stopped)} == {"info"}
    assert (started["message"], started["version"], started["nodes"]) == ("started", version("b3os"), 1)
    assert started["listens"] == f"http://127.0.0.1:{here.port}"
    assert started["operator_listens"] == f"http://127.0.0.1:{here.operator_port}"
    assert (stopping["message"], stopping["signal"]) == ("stopping", "SIGTERM")
    assert (stopping["under_way"], stopping["within_s"]) == (2, 0.75)
    assert stopped["cut"] == 2


async def test_an_edge_without_requests_cuts_none(here: Surroundings, node: FakeNode) -> None:
    async with running_edge(here, node) as edge:
        edge.process.send_signal(signal.SIGINT)
        _, stopping, stopped = await last_words(edge.process)
    assert (stopping["signal"], stopping["under_way"], stopped["cut"]) == ("SIGINT", 0, 0)
