"""A request to sampling parameters. Must not know vLLM's own bounds: its adapter does."""

from __future__ import annotations

from node.engine.port import Sampling
from node.wire.request import MessagesRequest


def build_sampling(request: MessagesRequest) -> Sampling:
    """Stop sequences are missing on purpose: they are matched on visible text (`stop.py`)."""
    return Sampling(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
    )
