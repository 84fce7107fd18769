"""What may stand around a task: a system prompt, earlier turns, tools that nobody asked for, reminders.

Decides how often and in which form. Must not know what the task is.
"""

from __future__ import annotations

from random import Random

from tests.models.tiny import calls
from tests.models.tiny.sample import Message, Sample
from tests.models.tiny.words import CITIES, COLOURS, GREETING, NAMES, SYSTEMS, TOOLS, WORDS

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;-_/()'\"#*"


def surround(rng: Random, sample: Sample) -> None:
    """Put things before the task that don't change its answer."""
    if not sample.tools and rng.random() < 0.1:
        sample.tools = calls.list_tools(rng, [], 3)
    if rng.random() < 0.12:
        _remind(rng, sample)
    if rng.random() < 0.25:
        before: list[Message] = []
        for _ in range(rng.choices((1, 2, 4), (6, 3, 1))[0]):
            before += _earlier(rng, sample)
        sample.messages[:0] = before
    if rng.random() < 0.3:
        sample.messages.insert(0, {"role": "system", "content": _system(rng)})


def _system(rng: Random) -> str:
    if rng.random() < 0.7:
        return rng.choice(SYSTEMS)
    if rng.random() < 0.3:
        return " ".join(rng.choices(WORDS, k=rng.randint(20, 150)))
    return scribble(rng, rng.randint(1, 6)) + "."


def scribble(rng: Random, words: int) -> str:
    """Text of words that nobody knows, and some that are known."""
    some = ("".join(rng.choices(LETTERS, k=rng.randint(1, 8))) for _ in range(words))
    return " ".join(rng.choice(WORDS) if rng.random() < 0.4 else word for word in some)


def _remind(rng: Random, sample: Sample) -> None:
    """A reminder before or after what the user says."""
    last = sample.messages[-1]
    if last["role"] != "user" or not isinstance(last["content"], str):
        return
    text = rng.choice(SYSTEMS) if rng.random() < 0.5 else scribble(rng, rng.randint(1, 6))
    reminder = f"<system-reminder>\n{text}\n</system-reminder>"
    parts = [reminder, last["content"]]
    if rng.random() < 0.5:
        parts.reverse()
    last["content"] = "\n\n".join(parts)


def _earlier(rng: Random, sample: Sample) -> list[Message]:
    """One exchange that is over."""
    kind = rng.random()
    words = " ".join(rng.sample(WORDS + CITIES + NAMES, rng.randint(1, 5)))
    if kind < 0.2 and len(said := sample.answer.split()) > 1 and sample.skill in ("say", "say prefilled"):
        # the same words in another order: only the last turn counts
        words = " ".join(rng.sample(said, rng.randint(1, len(said))))
    if kind < 0.55:
        return _exchange(f"Say: {words}", words)
    if kind < 0.7:
        last = rng.randint(3, 12)
        return _exchange(f"Count to {last}", " ".join(map(str, range(1, last + 1))))
    if kind < 0.8:
        return _exchange("hello", GREETING)
    if kind < 0.88 and not sample.colours:
        colour = rng.choice(list(COLOURS))
        sample.colours = [colour]
        asked: Message = {
            "role": "user",
            "content": [{"type": "image"}, {"type": "text", "text": "What colour is this?"}],
        }
        return [asked, {"role": "assistant", "content": colour}]
    name, arguments = calls.random_call(rng, rng.choice(TOOLS), 1)
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "user", "content": "Use " + calls.ask((name, arguments))},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": words},
        {"role": "assistant", "content": f"The result is {words}"},
    ]


def _exchange(asked: str, answered: str) -> list[Message]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
