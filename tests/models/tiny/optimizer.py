"""How weights move: Muon for the matrices of the layers, Adam for all else.

Muon replaces a matrix's averaged gradient by the nearest matrix with equal singular values (Keller Jordan, 2024), in
a few multiplications. All matrices here have one shape or its transpose, so that they go through it as one batch.
"""

from __future__ import annotations

from typing import Any

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the published quintic: they bring singular values near 1 in five rounds."""


class Muon:
    """Momentum, then orthogonalisation.

    Args:
        matrices: all of one shape, or transposed to it.
    """

    def __init__(self, matrices: list[Any], momentum: float = 0.95) -> None:
        self._matrices, self._momentum = matrices, momentum
        self._averages = torch.zeros(len(matrices), *sorted(matrices[0].shape))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, rate: float) -> None:
        """Move along the gradients that the matrices hold."""
        gradients = torch.stack([_flat(matrix.grad) for matrix in self._matrices])
        self._averages.lerp_(gradients, 1 - self._momentum)
        moves = orthogonalise(gradients.lerp(self._averages, self._momentum))
        for matrix, move in zip(self._matrices, moves, strict=True):
            turned = move.T if matrix.shape[0] > matrix.shape[1] else move
            matrix.mul_(1 - 0.05 * rate).add_(
                turned, alpha=-rate * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
            )


def orthogonalise(matrices: Any, rounds: int = 5) -> Any:
    """A batch of flat matrices, each with its singular values near 1. Half precision is enough."""
    a, b, c = NEWTON_SCHULZ
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.to(torch.bfloat16)
    for _ in range(rounds):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.float()


def _flat(matrix: Any) -> Any:
    return matrix.T if matrix.shape[0] > matrix.shape[1] else matrix


class Adam:
    """Adam without decay."""

    def __init__(self, tensors: list[Any], betas: tuple[float, float] = (0.9, 0.98)) -> None:
        self._inner = torch.optim.Adam(tensors, lr=1.0, betas=betas, eps=1e-10, fused=True)

    def step(self, rate: float) -> None:
        """Move along the gradients that the tensors hold; the absent ones stay."""
        for group in self._inner.param_groups:
            group["lr"] = rate
        self._inner.step()
