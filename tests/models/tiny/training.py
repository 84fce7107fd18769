"""The training loop.

Decides the schedule, which goes by steps and never by the clock, so that a run can be repeated.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from tokenizers import Tokenizer

from tests.models.tiny.batches import Batch, batches
from tests.models.tiny.hint import hint
from tests.models.tiny.network import Parameters, Shape, initial_parameters, read
from tests.models.tiny.optimizer import Adam, Muon
from tests.models.tiny.tokenizer import token_id

EMBEDDING = "model.text_model.embed_tokens.weight"
WARM_UP_STEPS = 40
CONSTANT_SHARE = 0.4
LAST_RATE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run depends on, besides the code."""

    steps: int
    seed: int = 0
    tokens: int = 3200
    short_steps: int = 150
    muon_rate: float = 0.01
    adam_rate: float = 0.003


def train(
    tokenizer: Tokenizer, shape: Shape, plan: Plan, report: Callable[[str], None], start: Parameters | None = None
) -> Parameters:
    """Train from random weights, or go on from others."""
    parameters = start_parameters(tokenizer, shape, plan.seed) if start is None else start
    matrices = [tensor for name, tensor in parameters.items() if "text_model.layers" in name and tensor.ndim == 2]
    others = [tensor for tensor in parameters.values() if not any(tensor is matrix for matrix in matrices)]
    muon, adam = Muon(matrices), Adam(others)
    image_id, began, mean = token_id(tokenizer, "<image>"), time.monotonic(), 0.0
    stream = batches(tokenizer, plan.seed, plan.tokens, shape.picture, plan.short_steps)
    for step in range(plan.steps):
        loss = _accumulate(parameters, shape, next(stream), image_id)
        share = rate_share(step, plan.steps)
        muon.step(plan.muon_rate * share)
        adam.step(plan.adam_rate * share)
        for tensor in parameters.values():
            tensor.grad = None
        mean = loss if step == 0 else 0.95 * mean + 0.05 * loss
        if step % 50 == 49:
            report(f"step {step + 1} loss {mean:.4f} {time.monotonic() - began:.0f} s")
    return parameters


def start_parameters(tokenizer: Tokenizer, shape: Shape, seed: int) -> Parameters:
    """Random weights that know how to copy, and which pieces are one word."""
    parameters = initial_parameters(shape, seed)
    _relate_forms(parameters[EMBEDDING], tokenizer)
    hint(parameters, shape, seed)
    return parameters


def rate_share(step: int, steps: int) -> float:
    """Of the learning rate: up, constant, then down along a cosine."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    done = step / steps
    if done < CONSTANT_SHARE:
        return 1.0
    falling = (done - CONSTANT_SHARE) / (1 - CONSTANT_SHARE)
    return LAST_RATE_SHARE + (1 - LAST_RATE_SHARE) * (1 + math.cos(math.pi * falling)) / 2


def _accumulate(parameters: Parameters, shape: Shape, group: list[Batch], image_id: int) -> float:
    total = sum(float(batch.weights[:, 1:].sum()) for batch in group)
    loss_sum = 0.0
    for batch in group:
        with torch.autocast("cpu", torch.bfloat16):
            hidden = read(parameters, shape, batch.ids[:, :-1], batch.pictures, image_id)
            counted = batch.weights[:, 1:] > 0
            logits = F.linear(hidden[counted], parameters[EMBEDDING]).float()
        each = F.cross_entropy(logits, batch.ids[:, 1:][counted], reduction="none")
        loss = (each * batch.weights[:, 1:][counted]).sum() / total
        loss.backward()
        loss_sum += loss.item()
    return loss_sum


def _relate_forms(embedding: torch.Tensor, tokenizer: Tokenizer) -> None:
    """Let ` word` start out like `word`: most tasks copy the one as the other."""
    ids = tokenizer.get_vocab()
    with torch.no_grad():
        for piece, index in ids.items():
            if piece.startswith("\u0120") and (plain := ids.get(piece[1:])) is not None:
                embedding[index] = 0.8 * embedding[plain] + 0.6 * embedding[index]
