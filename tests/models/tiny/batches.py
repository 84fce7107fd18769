"""Samples to batches of tokens, with the weight of each token in the loss.

Decides where thinking is cut and what is learnt from a sample. Must not know the network.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer

from tests.models.tiny.sample import Sample
from tests.models.tiny.tasks import samples
from tests.models.tiny.tokenizer import END, END_OF_THINKING, PAD, token_id
from tests.models.tiny.words import COLOURS

PICTURE_MEAN = PICTURE_DEVIATION = 0.5
COLOUR_JITTER = 24
SHORT_TOKENS = 130
"""The first steps see short samples only: they are cheap, and what to copy stands near."""
ENDLESS_WEIGHT = 0.15
"""Of a token of endless thinking: there are hundreds in a sample, and all easy."""


@dataclass(slots=True)
class Row:
    """Ids, and how much the prediction of each counts."""

    ids: list[int]
    weights: list[float]
    colours: list[str]


@dataclass(slots=True)
class Batch:
    """Rows padded on the right."""

    ids: Any
    weights: Any
    pictures: Any
    """None, or [n, 3, side, side] normalised."""


def encode(tokenizer: Tokenizer, sample: Sample, rng: Random) -> Row:
    """Thinking may be cut anywhere; the model learns what follows the cut, and never where it falls."""
    prompt: list[int] = tokenizer.encode(sample.prompt()).ids
    ids, weights = list(prompt), [0.0] * len(prompt)

    def add(text: str, weight: float = 1.0) -> None:
        more = tokenizer.encode(text).ids
        ids.extend(more)
        weights.extend([weight] * len(more))

    if sample.thought is not None:
        thought: list[int] = tokenizer.encode(sample.thought).ids
        is_cut = sample.endless or rng.random() < 0.25
        if is_cut:
            thought = thought[: rng.randint(0, len(thought))]
        ids += thought
        weights += [ENDLESS_WEIGHT if sample.endless else 1.0] * len(thought)
        if not is_cut:
            add("\n")
        add(END_OF_THINKING, 0.0 if is_cut else 1.0)
        add("\n\n")
    add(sample.answer)
    add(END)
    return Row(ids, weights, sample.colours)


def batches(tokenizer: Tokenizer, seed: int, tokens: int, side: int, short_steps: int) -> Iterator[list[Batch]]:
    """For each step some batches of rows of like length, of about `tokens` tokens in all."""
    rng, stream = Random(seed + 1), samples(seed + 1)
    pad = token_id(tokenizer, PAD)
    for step in itertools.count():
        longest = SHORT_TOKENS if step < short_steps else None
        rows: list[Row] = []
        while sum(len(row.ids) for row in rows) < tokens:
            row = encode(tokenizer, next(stream), rng)
            if longest is None or len(row.ids) <= longest:
                rows.append(row)
        rows.sort(key=lambda row: len(row.ids))
        groups: list[list[Row]] = [[]]
        for row in rows:
            group = groups[-1]
            is_waste = group and len(row.ids) > 1.7 * len(group[0].ids) + 40
            if is_waste or (len(group) + 1) * len(row.ids) > max(tokens // 2, len(row.ids)):
                groups.append(group := [])
            group.append(row)
        yield [_pad(group, pad, side, rng) for group in groups if group]


def _pad(rows: list[Row], pad: int, side: int, rng: Random) -> Batch:
    longest = max(len(row.ids) for row in rows)
    ids = torch.tensor([row.ids + [pad] * (longest - len(row.ids)) for row in rows])
    weights = torch.tensor([row.weights + [0.0] * (longest - len(row.ids)) for row in rows])
    pictures = [paint(colour, side, rng) for row in rows for colour in row.colours]
    return Batch(ids, weights, torch.stack(pictures) if pictures else None)


def paint(colour: str, side: int, rng: Random) -> Any:
    """A picture of nearly one colour, as the processor hands it over."""
    shades = [min(255, max(0, part + rng.randint(-COLOUR_JITTER, COLOUR_JITTER))) for part in COLOURS[colour]]
    flat = torch.tensor(shades, dtype=torch.float32).view(3, 1, 1) / 255
    return ((flat - PICTURE_MEAN) / PICTURE_DEVIATION).expand(3, side, side)
