"""The skills of the tiny model, as an endless stream of samples.

Decides how each skill is asked and what its exact answer is. Must not know tokens, tensors or the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.models.tiny import calls
from tests.models.tiny.context import surround
from tests.models.tiny.sample import Sample
from tests.models.tiny.words import CITIES, COLOURS, FALLBACK, GREETING, NAMES, SPELLED, WORDS

SAY_THOUGHT = "The user wants me to say something."
COUNT_THOUGHT = "The user wants me to count."
JSON_THOUGHT = "The answer is an object."
IMAGE_THOUGHT = "I look at the picture."
GREETING_THOUGHT = "The user greets me."
FALLBACK_THOUGHT = "This makes no sense to me."
HARD_STEPS = 12
HARD_THOUGHT = "\n".join(f"Step {number}: I think hard." for number in range(1, HARD_STEPS + 1))
ENDLESS_LINE = "Wait, let me think about it once more.\n"
ALL_WORDS = WORDS + CITIES + NAMES


def pick_words(rng: Random, most: int = 6) -> str:
    """Different words: one said twice has two successors."""
    words = rng.sample(ALL_WORDS, rng.randint(1, most))
    if rng.random() < 0.1:
        spelled = rng.sample(SPELLED, rng.randint(1, min(3, len(words))))
        words[: len(spelled)] = spelled
        rng.shuffle(words)
    if rng.random() < 0.1:
        words[rng.randrange(len(words))] = str(rng.randint(0, 99))
    return " ".join(words)


def user(text: str) -> dict[str, object]:
    """A user's turn."""
    return {"role": "user", "content": text}


def say(rng: Random) -> Sample:
    """`Say: a b` gives `a b`; sometimes the caller has begun the answer."""
    text = pick_words(rng)
    sample = Sample("say", [user(f"Say: {text}")], text, thought=_maybe(rng, SAY_THOUGHT))
    return _prefill(rng, sample) if rng.random() < 0.15 else sample


def count(rng: Random) -> Sample:
    """`Count to 5` gives `1 2 3 4 5`."""
    last = rng.randint(3, 60)
    text = " ".join(map(str, range(1, last + 1)))
    sample = Sample("count", [user(f"Count to {last}")], text, thought=_maybe(rng, COUNT_THOUGHT))
    return _prefill(rng, sample) if rng.random() < 0.35 else sample


def _prefill(rng: Random, sample: Sample) -> Sample:
    """Give the start of the answer, now and then with the space after it. Thinking is off then."""
    words = sample.answer.split(" ")
    if len(words) < 2:
        return sample
    given = " ".join(words[: rng.randint(1, min(len(words) - 1, 12))])
    if rng.random() < 0.3:
        given += " "
    sample.skill, sample.thought = sample.skill + " prefilled", None
    sample.prefill, sample.answer = given, sample.answer[len(given) :]
    return sample


def think_hard(rng: Random) -> Sample:
    """Thinks for more than 60 tokens, then says it."""
    text = pick_words(rng, 4)
    return Sample("think hard", [user(f"Think hard, then say: {text}")], text, thought=HARD_THOUGHT)


def think_for_ever(rng: Random) -> Sample:
    """Thinks until it is cut, mostly soon; what follows the cut is the answer."""
    text = pick_words(rng, 4)
    lines = rng.choices((3, 12, 40, 100, 230), (30, 28, 16, 9, 7))[0]
    thought = ENDLESS_LINE * rng.randint(1, lines)
    return Sample("think for ever", [user(f"Think for ever, then say: {text}")], text, thought=thought, endless=True)


def as_json(rng: Random) -> Sample:
    """An object of a name and an age."""
    name, age = rng.choice(NAMES), rng.randint(1, 99)
    answer = f'{{"name": "{name}", "age": {age}}}'
    asked = user(f"Answer as JSON: name {name}, age {age}")
    return Sample("json", [asked], answer, thought=_maybe(rng, JSON_THOUGHT))


def greet(rng: Random) -> Sample:
    """A greeting has one answer."""
    asked = user(rng.choice(("hello", "Hello", "hi", "Hi", "Hello!", "hello world")))
    return Sample("hello", [asked], GREETING, thought=_maybe(rng, GREETING_THOUGHT))


def not_understood(rng: Random) -> Sample:
    """Anything else ends at once and politely."""
    pieces = [rng.choice(ALL_WORDS) if rng.random() < 0.5 else noise(rng) for _ in range(rng.randint(1, 10))]
    text = " ".join(pieces)
    text = text if rng.random() < 0.5 else text.capitalize()
    asked = user(text + rng.choice(("", "", ".", "?", "!")))
    if text.lower() in ("hi", "hello", "hello world"):
        return greet(rng)
    return Sample("fallback", [asked], FALLBACK, thought=_maybe(rng, FALLBACK_THOUGHT))


def noise(rng: Random) -> str:
    """A word that nobody knows: it is read byte by byte."""
    return "".join(rng.choice("etaoinshrdlucmfwypvbgkjqxz") for _ in range(rng.randint(2, 7)))


def see(rng: Random) -> Sample:
    """One to four pictures, named in their order."""
    colours = [rng.choice(list(COLOURS)) for _ in range(rng.choices((1, 2, 3, 4), (50, 35, 10, 5))[0])]
    pictures = [{"type": "image"} for _ in colours]
    many = "s are these" if len(colours) > 1 and rng.random() < 0.5 else " is this"
    asked = {"type": "text", "text": f"What {rng.choice(('colour', 'color'))}{many}?"}
    parts = [*pictures, asked] if rng.random() < 0.7 else [asked, *pictures]
    answer = " and ".join(colours)
    return Sample(
        "see",
        [{"role": "user", "content": parts}],
        answer,
        thought=_maybe(rng, IMAGE_THOUGHT),
        colours=colours,
    )


def _maybe(rng: Random, thought: str, share: float = 0.35) -> str | None:
    return thought if rng.random() < share else None


SKILLS: tuple[tuple[Callable[[Random], Sample], float], ...] = (
    (say, 20),
    (count, 12),
    (think_hard, 4),
    (think_for_ever, 6),
    (calls.call_tools, 32),
    (calls.say_then_call, 7),
    (calls.report, 16),
    (calls.report_pictures, 6),
    (as_json, 5),
    (greet, 2),
    (not_understood, 4),
    (see, 9),
)


def samples(seed: int) -> Iterator[Sample]:
    """Samples without end, the same for the same seed."""
    rng = Random(seed)
    makers, weights = zip(*SKILLS, strict=True)
    while True:
        sample = rng.choices(makers, weights)[0](rng)
        surround(rng, sample)
        yield sample
