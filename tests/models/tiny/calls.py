"""The skills that have to do with tools: calling them and telling what they gave.

Decides how they are asked, written and told. Must not know tokens, tensors or the trainer.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.models.tiny.sample import Message, Sample
from tests.models.tiny.words import CITIES, COLOURS, ERRORS, NAMES, PARAMETERS, TOOLS, WORDS

CALL_THOUGHT = "I need a tool for this."
REPORT_THOUGHT = "The tool has answered."
VALUES = WORDS + CITIES + NAMES
DESCRIPTIONS = (
    "Get the weather of a city.",
    "Get the current time in a city.",
    "Search the web.",
    "Read a file.",
    "Add two numbers.",
    "A tool.",
)
Call = tuple[str, dict[str, Any]]


def random_call(rng: Random, name: str, most: int = 2) -> Call:
    """Arguments in the order in which they are asked for."""
    keys = rng.sample(PARAMETERS, rng.choices((0, 1, 2), (8, 47, 45))[0] if most == 2 else 1)
    return name, {key: _value(rng) for key in keys}


def _value(rng: Random) -> str | int:
    kind = rng.random()
    if kind < 0.2:
        return rng.randint(0, 99)
    if kind < 0.3:
        return " ".join(rng.sample(VALUES, 2))
    return rng.choice(VALUES if kind < 0.7 else CITIES)


def describe(rng: Random, call: Call) -> Message:
    """The schema of a tool that takes this call, and perhaps more."""
    name, arguments = call
    kinds = {key: "integer" if isinstance(value, int) else "string" for key, value in arguments.items()}
    for key in rng.sample(PARAMETERS, rng.choices((0, 1, 2), (6, 3, 1))[0]):
        kinds.setdefault(key, rng.choice(("string", "integer")))
    keys = rng.sample(list(kinds), len(kinds))
    properties: dict[str, Any] = {key: {"type": kinds[key]} for key in keys}
    for key in keys:
        if rng.random() < 0.15:
            properties[key]["description"] = _blurb(rng)
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if rng.random() < 0.6:
        parameters["required"] = [key for key in keys if key in arguments]
    if rng.random() < 0.15:
        parameters["additionalProperties"] = False
    function: dict[str, Any] = {"name": name}
    if rng.random() < 0.5:
        function["description"] = _blurb(rng)
    function["parameters"] = parameters
    return {"type": "function", "function": function}


def _blurb(rng: Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(DESCRIPTIONS)
    return " ".join(rng.sample(WORDS, rng.randint(1, 5))).capitalize() + "."


def list_tools(rng: Random, wanted: list[Call], most: int = 2) -> list[Message]:
    """The wanted tools among others, in any order."""
    taken = {name for name, _ in wanted}
    others = [name for name in TOOLS if name not in taken]
    merged: dict[str, dict[str, Any]] = {}
    for name, arguments in wanted + [random_call(rng, name) for name in rng.sample(others, rng.randint(0, most))]:
        merged[name] = merged.get(name, {}) | arguments
    return [describe(rng, call) for call in rng.sample(list(merged.items()), len(merged))]


def ask(call: Call) -> str:
    """`get_weather with city Paris and unit celsius`."""
    name, arguments = call
    stated = " and ".join(f"{key} {value}" for key, value in arguments.items())
    return f"{name} with {stated}" if stated else name


def write_call(call: Call) -> str:
    """The call as the model writes it."""
    name, arguments = call
    stated = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{stated}</function>\n</tool_call>"


def _pick_calls(rng: Random, share_of_two: float) -> list[Call]:
    names = rng.sample(TOOLS, 2 if rng.random() < share_of_two else 1)
    if len(names) == 2 and rng.random() < 0.15:
        names[1] = names[0]
    return [random_call(rng, name) for name in names]


def call_tools(rng: Random) -> Sample:
    """`Use A with x 1, then use B with y 2` gives both calls."""
    wanted = _pick_calls(rng, 0.55)
    asked = "Use " + ", then use ".join(map(ask, wanted))
    return Sample(
        "call" if len(wanted) == 1 else "two calls",
        [{"role": "user", "content": asked}],
        "\n".join(map(write_call, wanted)),
        thought=CALL_THOUGHT if rng.random() < 0.3 else None,
        tools=list_tools(rng, wanted),
    )


def say_then_call(rng: Random) -> Sample:
    """`Say a b, then use A` gives the text and the call."""
    wanted = _pick_calls(rng, 0.15)
    said = " ".join(rng.sample(VALUES, rng.randint(1, 4)))
    asked = f"Say {said}, then use " + ", then use ".join(map(ask, wanted))
    return Sample(
        "say then call",
        [{"role": "user", "content": asked}],
        said + "\n\n" + "\n".join(map(write_call, wanted)),
        thought=CALL_THOUGHT if rng.random() < 0.3 else None,
        tools=list_tools(rng, wanted),
    )


def _called(rng: Random, wanted: list[Call], *, thinking: bool) -> list[Message]:
    """The user's and the assistant's turn before the results."""
    asked = "Use " + ", then use ".join(map(ask, wanted))
    turn: Message = {"role": "assistant", "content": ""}
    if rng.random() < 0.15:
        said = " ".join(rng.sample(VALUES, rng.randint(1, 3)))
        asked, turn["content"] = f"Say {said}, then u" + asked[1:], said
    if thinking and rng.random() < 0.7:
        turn["reasoning_content"] = CALL_THOUGHT
    turn["tool_calls"] = [
        {"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in wanted
    ]
    return [{"role": "user", "content": asked}, turn]


def _result(rng: Random) -> str:
    words = rng.sample(VALUES, rng.randint(1, 3))
    if rng.random() < 0.2:
        words[0] = str(rng.randint(0, 99))
    return " ".join(words)


def report(rng: Random) -> Sample:
    """Tells one result, one failure or several results."""
    thinking = rng.random() < 0.35
    kind = rng.choices(("one", "error", "several"), (35, 15, 50))[0]
    count = 1 if kind != "several" else rng.choices((2, 3), (92, 8))[0]
    wanted = [random_call(rng, rng.choice(TOOLS), 1) for _ in range(count)]
    results = [_result(rng) for _ in wanted]
    answer = "The result is " + results[0] if count == 1 else "The results are " + " and ".join(results)
    if kind == "error":
        problem = rng.choice(ERRORS) if rng.random() < 0.5 else _result(rng)
        results, answer = [f"Error: {problem}"], f"The tool failed: {problem}"
    told: list[Message] = [{"role": "tool", "content": result} for result in results]
    if rng.random() < 0.1:  # the user says something with the results
        kind, answer = "say after a result", _result(rng)
        told.append({"role": "user", "content": f"Say: {answer}"})
    return Sample(
        kind if kind.startswith("say") else f"report {kind}",
        _called(rng, wanted, thinking=thinking) + told,
        answer,
        thought=REPORT_THOUGHT if thinking else None,
        tools=list_tools(rng, wanted[:1], 1),
    )


def report_pictures(rng: Random) -> Sample:
    """The results are pictures: the service shows them after all results."""
    thinking = rng.random() < 0.35
    count = rng.choices((1, 2), (75, 25))[0]
    wanted = [random_call(rng, rng.choice(TOOLS), 1) for _ in range(count)]
    colours = [rng.choice(list(COLOURS)) for _ in wanted]
    told: list[Message] = [{"role": "tool", "content": "(image follows)"} for _ in wanted]
    told.append({"role": "user", "content": [{"type": "image"} for _ in wanted]})
    answer = "The result is " if count == 1 else "The results are "
    return Sample(
        "report pictures",
        _called(rng, wanted, thinking=False) + told,
        answer + " and ".join(colours),
        thought=REPORT_THOUGHT if thinking else None,
        tools=list_tools(rng, wanted[:1], 1),
        colours=colours,
    )
