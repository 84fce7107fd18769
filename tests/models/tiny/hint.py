"""A start that can copy: most skills repeat something from the prompt, and finding out how takes long from nothing.

The first layer's heads look at the token just before; the second layer's look for the place where the token before
was the one that is here now, and take what stands there (an induction head; Olsson et al., 2022). Training refines
it. Decides initial weights of these two layers only.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.models.tiny.network import Parameters, Shape

HEADS = 3
CONSTANT = 0.25
"""Put into one place of every embedding, so that heads have something to be steered by that is always there."""
NEAR_PAIRS = 8
"""Pairs of a head that turn fast: they tell neighbours apart."""
FIRST_STEADY_PAIR = 13
"""From here pairs hardly turn within the window: they compare content."""
STEER, MATCH, CARRY, COPY = 2.0, 2.0, 0.08, 0.18


def hint(parameters: Parameters, shape: Shape, seed: int) -> None:
    """Change weights in place."""
    generator = torch.Generator().manual_seed(seed)
    pairs, width = shape.head // 2, shape.hidden
    rates = shape.rope_base ** (-torch.arange(pairs) / pairs)
    steady = [*range(FIRST_STEADY_PAIR, pairs), *range(pairs + FIRST_STEADY_PAIR, shape.head)]

    def directions() -> Any:
        return torch.linalg.qr(torch.randn(width, width, generator=generator))[0]

    compared, carried, copied = directions(), directions(), directions()
    with torch.no_grad():
        parameters["model.text_model.embed_tokens.weight"][:, 0] = CONSTANT
        for head in range(HEADS):
            rows = slice(head * shape.head, (head + 1) * shape.head)
            q, k, v, o = (parameters[f"model.text_model.layers.0.self_attn.{name}_proj.weight"] for name in "qkvo")
            near = torch.arange(NEAR_PAIRS)
            q[rows][near, 0] = STEER
            k[rows][near, 0] = STEER * rates[near].cos()
            k[rows][near + pairs, 0] = STEER * rates[near].sin()
            v[rows] = compared[rows]
            o[:, rows] = CARRY * carried[rows].T
            q, k, v, o = (parameters[f"model.text_model.layers.1.self_attn.{name}_proj.weight"] for name in "qkvo")
            q[rows], k[rows] = 0, 0
            q[rows][steady] = MATCH * compared[rows][steady]
            k[rows][steady] = MATCH * carried[rows][steady]
            v[rows] = copied[rows]
            o[:, rows] = COPY * copied[rows].T
