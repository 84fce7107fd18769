"""What a stranger writes is read in time that grows with its length, and not with its square.

Every pattern of ours is tried with texts that are made to hold it up, and so are the functions that look at them.
The processor's time for a text is compared with that for one sixteen times as long: sixteen times as much is fair,
and the square would be 256 times.
"""

from __future__ import annotations

import ast
import importlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from multidict import CIMultiDict

from edge.affinity import read_affinity
from edge.auth.failures import address_of
from shared.cli.user.text import one_line, redact
from shared.errors import safe_text
from shared.log import JsonFormatter
from shared.model_name import look_for_models, read_model
from tests.unit.test_imports import ROOT, SOURCES

SHORT, TIMES = 600, 16
MOST_TIMES = 72
"""Of what a short text takes."""
FREE_S = 0.002
"""What so short a time is measured as says nothing."""
UNITS = (
    *(
        "a",
        "0",
        "1.",
        "-",
        "_",
        ".",
        "/",
        ":",
        ",",
        " ",
        "\t",
        "\n",
        "\r",
        '"',
        "'",
        "\\",
        '\\"',
        "[",
        "]",
        "{",
        "}",
        "<",
        "%",
    ),
    *(
        "-eyJ",
        "eyJ.",
        "b3os_sk_",
        "b3os_pat_a-",
        "b3os_session=",
        "/v1/infer",
        "/v1/infer/v1/",
        "$1.",
        "v=1.",
        "xn--",
        "a-.",
    ),
    *(
        '"model":"',
        '"model" : "\\',
        '"messages":[',
        '"system":"',
        '"system":[{"type":"text",',
        "\\ud8",
        "True",
        "a.a:",
        "é",
    ),
    *("\x00", "\ud800", "\xff\xfe", "<tool_call>", "<think", "<function=a>", "-1e", "http://"),
)
SEARCHES = {"search", "sub", "subn", "finditer", "findall", "split"}
"""Begin anew at every character; the others at one."""
Act = Callable[[Any], object]


def names_that_search(source: str) -> set[str]:
    """Of variables, whose methods begin at every character."""
    return {
        node.value.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in SEARCHES
    } | {
        argument.id  # `_first(_SYSTEM, parts)`
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for argument in node.args
        if isinstance(argument, ast.Name)
    }


def find_patterns() -> Iterator[tuple[str, Act, bool]]:
    """Every pattern that a module holds: its name, how it is used, and whether on bytes."""
    sources = {path: path.read_text() for path in SOURCES}
    public = {name for text in sources.values() for name in names_that_search(text) if not name.startswith("_")}
    for path, text in sources.items():
        if "re.compile(" not in text:
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        searching = names_that_search(text) | public
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, re.Pattern) and f"{name} = re.compile(" in text:
                act = exhaust(value) if name in searching else value.match
                yield f"{module}.{name}", act, isinstance(value.pattern, bytes)


def exhaust(pattern: re.Pattern[Any]) -> Act:
    return lambda text: sum(1 for _ in pattern.finditer(text))


def log(path: str) -> str:
    record = logging.LogRecord("b3os", logging.INFO, "f", 1, path, None, None)
    record.facts = {"path": path}
    return JsonFormatter().format(record)


def who_forwarded(text: str) -> str:
    return address_of("192.0.2.1", CIMultiDict([("X-Forwarded-For", text)]), 1)


PATTERNS = {name: (act, is_bytes) for name, act, is_bytes in find_patterns()}
FUNCTIONS: dict[str, tuple[Act, bool]] = {
    "a line of the log": (log, False),
    "a sentence of a refusal": (lambda text: safe_text(text, 100_000), False),
    "an address": (who_forwarded, False),
    "a line of a terminal": (lambda text: one_line(redact(text), 100_000), False),
    "the model of a body": (read_model, True),
    "the models of a body": (look_for_models, True),
    "the conversation of a body": (lambda body: read_affinity("org", body), True),
}


def least_s(act: Act, text: str | bytes, free_s: float) -> float:
    """Of three tries, or of fewer if one was free."""
    least = float("inf")
    for _ in range(3):
        begun_s = time.thread_time()
        act(text)
        least = min(least, time.thread_time() - begun_s)
        if least <= free_s:
            break
    return least


def is_slow(act: Act, unit: str, end: str, *, is_bytes: bool) -> bool:
    """Whether many units take too long."""
    texts = [unit * times + end for times in (SHORT, SHORT * TIMES)]
    short, long = [text.encode(errors="replace") for text in texts] if is_bytes else texts
    long_s = least_s(act, long, FREE_S)
    return long_s > FREE_S and long_s > MOST_TIMES * least_s(act, short, 0)


def find_slow(act: Act, *, is_bytes: bool) -> list[tuple[str, str]]:
    """The units that do, and what stands behind them."""
    return [(unit, end) for unit in UNITS for end in ("", "!") if is_slow(act, unit, end, is_bytes=is_bytes)]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_takes_time_by_the_length_of_a_text(name: str) -> None:
    act, is_bytes = PATTERNS[name]
    assert find_slow(act, is_bytes=is_bytes) == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_looks_at_a_stranger_s_text_does_too(name: str) -> None:
    act, is_bytes = FUNCTIONS[name]
    assert find_slow(act, is_bytes=is_bytes) == []


def test_all_patterns_are_found_and_a_bad_one_is_seen() -> None:
    assert {"shared.log._SECRETS", "shared.model_name._MODEL", "edge.affinity._SYSTEM"} <= set(PATTERNS)
    assert is_slow(exhaust(re.compile(r"\beyJ[\w-]{8,}\.")), "-eyJ", "", is_bytes=False)
