"""Every row of the tables of docs/wire.md and docs/errors.md has a test that bears its name.

`test_errors_413_payload_too_large_…` is for the row "413 `payload_too_large`" of the section "Errors".
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

import pytest

from edge.settings import EdgeSection
from node.catalog.served import ServedModel
from node.engine import grammar_guard
from node.images import decode, intake
from node.json_levels import MOST_LEVELS
from node.sse import PING_AFTER_S
from node.wire import parse

ROOT = Path(__file__).parents[2]
MODEL, EDGE = ServedModel("b3os/x", "x", "x"), EdgeSection.model_fields

ELSEWHERE = {  # rows that need a service of another kind: broken, silent, or spoken to in broken HTTP; or none
    "bounds bytes of the schemas that one answer is kept to": (
        "tests/integration/node/test_grammar_guard.py::"
        "test_more_than_256_kib_of_schemas_are_refused_before_they_are_read"
    ),
    "bounds levels of a call's input": (
        "tests/unit/node/test_rules.py::test_an_input_is_nested_no_deeper_than_it_can_be_told_again"
    ),
    "bounds scans of a JPEG": (
        "tests/unit/node/test_decode.py::test_a_jpeg_of_hundreds_of_scans_is_refused_before_it_is_decoded"
    ),
    **{
        f"errors 400 {code}": f"tests/contract/test_devices.py::{name}"
        for code, name in (
            ("authorization_pending", "test_devices_waiting_is_told_its_pace"),
            ("slow_down", "test_devices_waiting_is_told_its_pace"),
            ("access_denied", "test_devices_token_is_fetched_once"),
            ("expired_token", "test_devices_token_is_fetched_once"),
        )
    },
    "errors 402 spend_cap_reached": (
        "tests/contract/test_limits.py::test_a_spend_cap_is_reached_by_what_an_answer_may_cost"
    ),
    "errors 408 request_timeout": "tests/integration/test_http_server.py::test_a_body_that_stops_coming_is_a_408",
    "errors 409 token_reused": (
        "tests/integration/node/test_messages.py::test_a_request_without_a_token_or_with_a_used_one_is_not_read"
    ),
    "errors 429 concurrency_limited": "tests/contract/test_limits.py::test_no_more_run_at_once_than_may",
    "errors 429 rate_limited": (
        "tests/contract/test_limits.py::test_a_rate_limit_names_itself_the_model_and_the_seconds"
    ),
    "errors 503 node_unavailable": "tests/integration/edge/test_proxy.py::test_no_reachable_node_is_a_503",
    "headers RateLimit": "tests/contract/test_limits.py::test_the_requests_meter_is_told_on_success_and_on_429",
    "streaming ping": (
        "tests/integration/node/test_messages.py::test_silence_is_broken_by_ping_events_between_the_others"
    ),
}


def tables(document: str) -> dict[str, list[list[str]]]:
    """The rows of every table by the heading that they stand under, without those that name the columns."""
    found: dict[str, list[list[str]]] = defaultdict(list)
    heading = ""
    lines = (ROOT / document).read_text().splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("#"):
            heading = line.strip("# ").lower()
        elif line.startswith("| ") and not re.match(r"\|[ -]+\|", line) and not re.match(r"\|[ -]+\|", following):
            found[heading].append([cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")])
    return found


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


@functools.cache
def rows() -> dict[str, set[str]]:
    """The slugs of all rows that must have a test, by section."""
    wire = tables("docs/wire.md")
    found = {name: {slug(row[0]) for row in wire[name]} for name in wire}
    return found | {"errors": {slug(f"{row[0]} {row[1]}") for row in tables("docs/errors.md")["errors"]}}


@functools.cache
def names_by_section() -> dict[str, list[str]]:
    """What follows `test_<section>_` in the names of these tests; some sections need none of a row's name."""
    found: dict[str, list[str]] = {}
    for section in rows():
        file = ROOT / "tests" / "contract" / f"test_{section}.py"
        names = [node.name for node in ast.walk(ast.parse(file.read_text())) if hasattr(node, "name")]
        found[section] = [name.removeprefix("test_") for name in names if name.startswith("test_")]
    return found


def row_of(test: str, section: str) -> str | None:
    """The row that a test is named after: the longest that its name begins with."""
    slugs = [row for row in rows()[section] if f"{test}_".startswith(f"{section}_{row}_")]
    return max(slugs, key=len, default=None)


def test_the_documents_have_the_sections_of_the_contract() -> None:
    assert set(rows()) == {
        *("names", "routes", "fields", "refusals", "headers", "streaming", "agents", "bounds", "errors"),
        *("sessions", "keys", "devices", "requests"),
    }


@pytest.mark.parametrize("section", sorted(rows()))
def test_every_row_has_a_test_that_bears_its_name(section: str) -> None:
    tested = {row_of(name, section) for name in names_by_section()[section]}
    elsewhere = {slug(row.removeprefix(section)) for row in ELSEWHERE if row.startswith(f"{section} ")}
    assert elsewhere <= rows()[section]
    assert rows()[section] - tested - elsewhere == set()


@pytest.mark.parametrize("section", sorted(rows()))
def test_every_test_bears_the_name_of_a_row(section: str) -> None:
    assert [name for name in names_by_section()[section] if row_of(name, section) is None] == []


def test_the_tests_elsewhere_exist() -> None:
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), place


def test_the_bounds_are_the_code_s() -> None:
    told = {
        row[0]: [int(number) for number in re.findall(r"\d+", row[1])] for row in tables("docs/wire.md")["bounds"]
    }
    assert told == {
        "bytes of a body": [MODEL.max_request_bytes, EDGE["max_request_bytes"].get_default()],
        "messages": [parse.MAX_MESSAGES],
        "content blocks": [parse.MAX_BLOCKS],
        "tools": [parse.MAX_TOOLS],
        "fields": [parse.MAX_FIELDS],
        "stop sequences": [parse.MAX_STOPS, parse.MAX_STOP_CHARACTERS],
        "JSON values": [parse.MAX_VALUES],
        "bytes of a schema": [65_536],
        "levels of a schema": [32],
        "bytes of the schemas that one answer is kept to": [grammar_guard.MOST_SCHEMA_BYTES],
        "levels of a call's input": [MOST_LEVELS],
        "images": [intake.MAX_IMAGES],
        "scans of a JPEG": [decode.MAX_SCANS],
        "pixels of an image": [decode.MAX_PIXELS, decode.MAX_SIDE],
    }


def test_a_stream_is_silent_for_as_long_as_is_said_and_no_longer() -> None:
    assert f"after {PING_AFTER_S} s of silence" in (ROOT / "docs" / "wire.md").read_text()
