"""Prompts whose answers of the tiny model are known: each has passed through real vLLM at temperature 0.

The test suite takes its prompts from here. Messages are in the shape that chat templates take; the model card
says what else the model can do. `python -m tests.models.eval_tiny` runs them all again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.models.tiny.calls import CALL_THOUGHT, REPORT_THOUGHT
from tests.models.tiny.tasks import (
    COUNT_THOUGHT,
    ENDLESS_LINE,
    GREETING_THOUGHT,
    HARD_THOUGHT,
    IMAGE_THOUGHT,
    JSON_THOUGHT,
    SAY_THOUGHT,
)
from tests.models.tiny.words import FALLBACK, GREETING

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A prompt and its exact outcome.

    Args:
        text: of the answer; where a call follows, without the empty line between.
        calls: names and arguments, in order.
        thought: what it thinks; None without thinking. Cut thinking is a beginning of it.
        budget: of thinking tokens.
        prefill: the start of the answer, which `text` goes on from.
        colours: of the pictures that stand in the messages as `{"type": "image"}`, in order.
    """

    skill: str
    messages: list[Message]
    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    thought: str | None = None
    budget: int | None = None
    prefill: str = ""
    tools: list[Message] = field(default_factory=list)
    colours: list[str] = field(default_factory=list)


def tool(name: str, /, **kinds: str) -> Message:
    """A tool in OpenAI's shape, all parameters required."""
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool("get_weather", city="string")
WEATHER_IN_UNIT = tool("get_weather", city="string", unit="string")
TIME = tool("get_time", city="string")
ADD = tool("add", a="integer", b="integer")
SEARCH = tool("search", query="string", limit="integer")
DESCRIBED: Message = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells what the weather is like in a place right now.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "A town, and its country if there are several"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["location"],
        },
    },
}
IN_PARIS: tuple[str, dict[str, Any]] = ("get_weather", {"location": "Paris"})
PARIS: tuple[str, dict[str, Any]] = ("get_weather", {"city": "Paris"})
ROME: tuple[str, dict[str, Any]] = ("get_time", {"city": "Rome"})


def user(text: str) -> Message:
    """A user's turn."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    """An answer given before."""
    return {"role": "assistant", "content": text}


def called(*calls: tuple[str, dict[str, Any]]) -> Message:
    """An assistant's turn that calls tools."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls
        ],
    }


def result(text: str) -> Message:
    """What a tool gave."""
    return {"role": "tool", "content": text}


def shown(count: int, text: str = "") -> Message:
    """A user's turn of pictures, and perhaps a question."""
    asked = [{"type": "text", "text": text}] if text else []
    return {"role": "user", "content": [{"type": "image"} for _ in range(count)] + asked}


def counted(first: int, last: int) -> str:
    """`1 2 3`."""
    return " ".join(map(str, range(first, last + 1)))


ASKED_PARIS = user("Use get_weather with city Paris")
ASKED_BOTH = user("Use get_weather with city Paris, then use get_time with city Rome")
SYSTEM: Message = {"role": "system", "content": "You are a helpful assistant."}
FOR_EVER = ENDLESS_LINE * 230
REMINDER = "<system-reminder>\nBe brief.\n</system-reminder>"

SAY = [
    Fixed("say", [user("Say: hello world")], "hello world"),
    Fixed("say", [user("Say: one two three four five six")], "one two three four five six"),
    Fixed("say", [user("Say: red")], "red"),
    Fixed("say", [user("Say: café 日本 🙂")], "café 日本 🙂"),
    Fixed("say, system prompt", [SYSTEM, user("Say: apple banana cherry")], "apple banana cherry"),
    Fixed("say, system prompt", [SYSTEM, user("Say: done")], "done"),
    Fixed("say, system prompt", [{"role": "system", "content": "Be brief."}, user("Say: warm rain")], "warm rain"),
    Fixed(
        "say, later turn", [user("Say: sun moon"), assistant("sun moon"), user("Say: moon star sky")], "moon star sky"
    ),
    Fixed("say, later turn", [user("hello"), assistant(GREETING), user("Say: thanks Ada")], "thanks Ada"),
    Fixed("say, later turn", [SYSTEM, user("Count to 3"), assistant("1 2 3"), user("Say: good day")], "good day"),
    Fixed("say, reminder", [user(f"{REMINDER}\n\nSay: yes please")], "yes please"),
    Fixed("say, reminder", [user(f"Say: yes please\n\n{REMINDER}")], "yes please"),
    Fixed("say, reminder", [user("Say: cold"), assistant("cold"), user(f"{REMINDER}\n\nSay: warm")], "warm"),
    Fixed("say, prefilled", [user("Say: one two three")], " three", prefill="one two"),
    Fixed("say, prefilled", [user("Say: red green blue")], " green blue", prefill="red"),
    Fixed("say, prefilled", [user("Say: hello world")], "world", prefill="hello "),
    Fixed("say, prefilled", [user("Say: one two three")], "three", prefill="one two "),
    Fixed("say, thinking", [user("Say: hello world")], "hello world", thought=SAY_THOUGHT),
    Fixed("say, thinking", [user("Say: Paris")], "Paris", thought=SAY_THOUGHT),
    Fixed("say, thinking", [SYSTEM, user("Say: open door")], "open door", thought=SAY_THOUGHT),
    Fixed("say, tools unused", [user("Say: hello world")], "hello world", tools=[WEATHER]),
    Fixed("say, tools unused", [user("Say: sunny day")], "sunny day", tools=[WEATHER, TIME]),
    Fixed("say, tools unused", [user("Say: ok")], "ok", thought=SAY_THOUGHT, tools=[ADD]),
]
COUNT = [
    *(Fixed("count", [user(f"Count to {last}")], counted(1, last)) for last in (3, 5, 10, 20, 33, 60)),
    *(
        Fixed("count, thinking", [user(f"Count to {last}")], counted(1, last), thought=COUNT_THOUGHT)
        for last in (4, 10, 30)
    ),
    Fixed("count, prefilled", [user("Count to 10")], " " + counted(4, 10), prefill="1 2 3"),
    Fixed("count, prefilled", [user("Count to 5")], " " + counted(2, 5), prefill="1"),
    Fixed("count, prefilled", [user("Count to 20")], " " + counted(11, 20), prefill=counted(1, 10)),
]
THINK = [
    *(
        Fixed("think hard", [user(f"Think hard, then say: {text}")], text, thought=HARD_THOUGHT)
        for text in ("hello world", "done", "red green blue")
    ),
    *(
        Fixed("think hard, cut", [user("Think hard, then say: done")], "done", thought=HARD_THOUGHT, budget=budget)
        for budget in (1, 16, 40)
    ),
    *(
        Fixed(
            "think for ever, cut", [user(f"Think for ever, then say: {text}")], text, thought=FOR_EVER, budget=budget
        )
        for text, budget in (
            ("done", 1),
            ("hello world", 16),
            ("ok", 100),
            ("done", 1024),
            ("hello world", 1500),
            ("sun moon", 2400),
        )
    ),
]
CALL = [
    Fixed("call", [ASKED_PARIS], calls=[PARIS], tools=[WEATHER]),
    Fixed("call", [ASKED_PARIS], calls=[PARIS], tools=[TIME, WEATHER, ADD]),
    Fixed("call", [user("Use get_time with city Rome")], calls=[ROME], tools=[WEATHER, TIME]),
    Fixed("call", [user("Use ping")], calls=[("ping", {})], tools=[tool("ping")]),
    Fixed("call, thinking", [ASKED_PARIS], calls=[PARIS], thought=CALL_THOUGHT, tools=[WEATHER]),
    Fixed("call, thinking", [ASKED_PARIS], calls=[PARIS], thought=CALL_THOUGHT, tools=[WEATHER, TIME]),
    Fixed("call, thinking", [user("Use get_time with city Rome")], calls=[ROME], thought=CALL_THOUGHT, tools=[TIME]),
    Fixed(
        "call, two parameters",
        [user("Use get_weather with city Paris and unit celsius")],
        calls=[("get_weather", {"city": "Paris", "unit": "celsius"})],
        tools=[WEATHER_IN_UNIT],
    ),
    Fixed(
        "call, two parameters",
        [user("Use get_weather with unit celsius and city Paris")],
        calls=[("get_weather", {"unit": "celsius", "city": "Paris"})],
        tools=[WEATHER_IN_UNIT, TIME],
    ),
    Fixed("call, two parameters", [user("Use add with a 2 and b 3")], calls=[("add", {"a": 2, "b": 3})], tools=[ADD]),
    Fixed(
        "call, two parameters",
        [user("Use search with query coffee and limit 5")],
        calls=[("search", {"query": "coffee", "limit": 5})],
        tools=[WEATHER, SEARCH],
    ),
    Fixed("two calls", [ASKED_BOTH], calls=[PARIS, ROME], tools=[WEATHER, TIME]),
    Fixed("two calls", [ASKED_BOTH], calls=[PARIS, ROME], tools=[TIME, WEATHER, ADD]),
    Fixed("two calls", [ASKED_BOTH], calls=[PARIS, ROME], thought=CALL_THOUGHT, tools=[WEATHER, TIME]),
    Fixed(
        "two calls",
        [user("Use add with a 2 and b 3, then use search with query tea")],
        calls=[("add", {"a": 2, "b": 3}), ("search", {"query": "tea"})],
        tools=[ADD, SEARCH],
    ),
    Fixed(
        "say then call",
        [user("Say hello, then use get_weather with city Paris")],
        "hello",
        [PARIS],
        tools=[WEATHER],
    ),
    Fixed(
        "say then call",
        [user("Say one two three, then use get_time with city Rome")],
        "one two three",
        [ROME],
        tools=[WEATHER, TIME],
    ),
    *(
        Fixed(
            "say then call twice",
            [user(f"Say {said}, then use get_weather with city Paris, then use get_time with city Rome")],
            said,
            [PARIS, ROME],
            thought=thought,
            tools=[WEATHER, TIME, ADD],
        )
        for said, thought in (("ok", None), ("hello world", None), ("ok", CALL_THOUGHT))
    ),
    Fixed(
        "say then call",
        [user("Say ok, then use get_weather with city Paris")],
        "ok",
        [PARIS],
        thought=CALL_THOUGHT,
        tools=[WEATHER],
    ),
    Fixed("call, described tool", [user("Use get_weather with location Paris")], calls=[IN_PARIS], tools=[DESCRIBED]),
    Fixed(
        "call, described tool",
        [user("Use get_weather with location Paris and unit celsius")],
        calls=[("get_weather", {"location": "Paris", "unit": "celsius"})],
        tools=[DESCRIBED],
    ),
    Fixed(
        "call, described tool",
        [user("Use get_weather with location Paris")],
        calls=[IN_PARIS],
        thought=CALL_THOUGHT,
        tools=[DESCRIBED, TIME],
    ),
]
REPORT = [
    Fixed("report", [ASKED_PARIS, called(PARIS), result("sunny")], "The result is sunny", tools=[WEATHER]),
    Fixed("report", [ASKED_PARIS, called(PARIS), result("18 degrees")], "The result is 18 degrees", tools=[WEATHER]),
    Fixed(
        "report",
        [ASKED_PARIS, called(PARIS), result("sunny")],
        "The result is sunny",
        thought=REPORT_THOUGHT,
        tools=[WEATHER],
    ),
    Fixed(
        "report, failed",
        [ASKED_PARIS, called(PARIS), result("Error: not found")],
        "The tool failed: not found",
        tools=[WEATHER],
    ),
    Fixed(
        "report, failed",
        [ASKED_PARIS, called(PARIS), result("Error: timeout")],
        "The tool failed: timeout",
        tools=[WEATHER, TIME],
    ),
    Fixed(
        "report, failed",
        [ASKED_PARIS, called(PARIS), result("Error: no such city")],
        "The tool failed: no such city",
        thought=REPORT_THOUGHT,
        tools=[WEATHER],
    ),
    Fixed(
        "report, two",
        [ASKED_BOTH, called(PARIS, ROME), result("sunny"), result("noon")],
        "The results are sunny and noon",
        tools=[WEATHER, TIME],
    ),
    Fixed(
        "report, two",
        [ASKED_BOTH, called(PARIS, ROME), result("sunny"), result("ten")],
        "The results are sunny and ten",
        tools=[WEATHER, TIME],
    ),
    Fixed(
        "report, two",
        [ASKED_BOTH, called(PARIS, ROME), result("rain"), result("9 degrees")],
        "The results are rain and 9 degrees",
        thought=REPORT_THOUGHT,
        tools=[WEATHER, TIME],
    ),
    *(
        Fixed(
            "report, picture",
            [ASKED_PARIS, called(PARIS), result("(image follows)"), shown(1)],
            f"The result is {colour}",
            tools=[WEATHER],
            colours=[colour],
        )
        for colour in ("red", "blue", "yellow")
    ),
    Fixed(
        "report, picture",
        [ASKED_BOTH, called(PARIS, ROME), result("(image follows)"), result("(image follows)"), shown(2)],
        "The results are green and red",
        tools=[WEATHER, TIME],
        colours=["green", "red"],
    ),
    *(
        Fixed(
            "say after a result",
            [ASKED_PARIS, called(PARIS), result("sunny"), user(f"Say: {text}")],
            text,
            tools=[WEATHER],
        )
        for text in ("thanks", "hello world", "good day")
    ),
]
SEE = [
    *(
        Fixed("see", [shown(1, "What colour is this?")], colour, colours=[colour])
        for colour in ("red", "green", "blue", "yellow", "purple", "orange", "black", "white")
    ),
    Fixed("see, thinking", [shown(1, "What colour is this?")], "red", thought=IMAGE_THOUGHT, colours=["red"]),
    Fixed("see, thinking", [shown(1, "What colour is this?")], "blue", thought=IMAGE_THOUGHT, colours=["blue"]),
    Fixed(
        "see, thinking", [SYSTEM, shown(1, "What color is this?")], "green", thought=IMAGE_THOUGHT, colours=["green"]
    ),
    *(
        Fixed("see two", [shown(2, "What colours are these?")], " and ".join(colours), colours=colours)
        for colours in (["red", "blue"], ["blue", "red"], ["yellow", "green"], ["white", "white"])
    ),
]
OTHER = [
    *(
        Fixed("json", [user(f"Answer as JSON: name {name}, age {age}")], f'{{"name": "{name}", "age": {age}}}')
        for name, age in (("Ada", 36), ("Bob", 5), ("Vera", 81))
    ),
    Fixed(
        "json, thinking",
        [user("Answer as JSON: name Ada, age 36")],
        '{"name": "Ada", "age": 36}',
        thought=JSON_THOUGHT,
    ),
    Fixed(
        "json, thinking", [user("Answer as JSON: name Leo, age 9")], '{"name": "Leo", "age": 9}', thought=JSON_THOUGHT
    ),
    Fixed(
        "json, thinking",
        [user("Answer as JSON: name Mia, age 50")],
        '{"name": "Mia", "age": 50}',
        thought=JSON_THOUGHT,
    ),
    Fixed("hello", [user("hello")], GREETING),
    Fixed("hello", [SYSTEM, user("Hello")], GREETING),
    Fixed("hello", [user("hello")], GREETING, thought=GREETING_THOUGHT),
    Fixed("hello", [user("Hi")], GREETING, tools=[WEATHER]),
    Fixed("fallback", [user("What is the capital of France?")], FALLBACK),
    Fixed("fallback", [user("Why?")], FALLBACK),
    Fixed("fallback", [SYSTEM, user("Tell me a story about a dog.")], FALLBACK),
]
FIXED = [*SAY, *COUNT, *THINK, *CALL, *REPORT, *SEE, *OTHER]
