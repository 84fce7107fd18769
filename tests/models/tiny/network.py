"""The network of Idefics3, small: a Llama that reads text and the patches of pictures.

Decides shapes and the forward pass; the parameters carry the names that transformers and vLLM load. Must not know
tasks or training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

Tensor = Any
Parameters = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network; about 2.4 million parameters."""

    vocabulary: int
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    head: int = 64
    inner: int = 384
    rope_base: float = 1_000_000.0
    """Large, so that half of each head still sees content, not distance, 2500 tokens away."""
    norm_eps: float = 1e-5
    positions: int = 4096
    picture: int = 64
    patch: int = 16
    shuffle: int = 2
    vision_hidden: int = 64
    vision_inner: int = 128
    vision_heads: int = 2

    @property
    def patches(self) -> int:
        """Of one picture, before the shuffle joins `shuffle` squared of them to one token."""
        side = self.picture // self.patch
        return side * side


def initial_parameters(shape: Shape, seed: int) -> Parameters:
    """Random weights, as tensors that want gradients. The output shares the embedding."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int, deviation: float) -> Tensor:
        return torch.randn(*size, generator=generator) * deviation

    wide, narrow = shape.heads * shape.head, shape.hidden
    out = {"model.text_model.embed_tokens.weight": normal(shape.vocabulary, narrow, deviation=0.05)}
    for layer in range(shape.layers):
        at = f"model.text_model.layers.{layer}."
        for name in ("q", "k", "v"):
            out[f"{at}self_attn.{name}_proj.weight"] = normal(wide, narrow, deviation=narrow**-0.5)
        out[f"{at}self_attn.o_proj.weight"] = normal(narrow, wide, deviation=0.05 * wide**-0.5)
        out[f"{at}mlp.gate_proj.weight"] = normal(shape.inner, narrow, deviation=narrow**-0.5)
        out[f"{at}mlp.up_proj.weight"] = normal(shape.inner, narrow, deviation=narrow**-0.5)
        out[f"{at}mlp.down_proj.weight"] = normal(narrow, shape.inner, deviation=0.05 * shape.inner**-0.5)
        out[f"{at}input_layernorm.weight"] = torch.ones(narrow)
        out[f"{at}post_attention_layernorm.weight"] = torch.ones(narrow)
    out["model.text_model.norm.weight"] = torch.ones(narrow)
    _add_vision(out, shape, normal)
    for tensor in out.values():
        tensor.requires_grad_(True)
    return out


def _add_vision(out: Parameters, shape: Shape, normal: Any) -> None:
    size, inner, seen = shape.vision_hidden, shape.vision_inner, 3 * shape.patch**2
    at = "model.vision_model."

    def linear(name: str, rows: int, columns: int) -> None:
        out[f"{at}{name}.weight"] = normal(rows, columns, deviation=columns**-0.5)
        out[f"{at}{name}.bias"] = torch.zeros(rows)

    linear("embeddings.patch_embedding", size, seen)
    patch = out[f"{at}embeddings.patch_embedding.weight"]
    out[f"{at}embeddings.patch_embedding.weight"] = patch.view(size, 3, shape.patch, shape.patch)
    out[f"{at}embeddings.position_embedding.weight"] = normal(shape.patches, size, deviation=0.02)
    for name in ("q", "k", "v", "out"):
        linear(f"encoder.layers.0.self_attn.{name}_proj", size, size)
    linear("encoder.layers.0.mlp.fc1", inner, size)
    linear("encoder.layers.0.mlp.fc2", size, inner)
    for name in ("encoder.layers.0.layer_norm1", "encoder.layers.0.layer_norm2", "post_layernorm"):
        out[f"{at}{name}.weight"], out[f"{at}{name}.bias"] = torch.ones(size), torch.zeros(size)
    joined = size * shape.shuffle**2
    out["model.connector.modality_projection.proj.weight"] = normal(shape.hidden, joined, deviation=joined**-0.5)


def see(parameters: Parameters, shape: Shape, pictures: Tensor) -> Tensor:
    """Pictures [n, 3, 64, 64] to the tokens that stand for them [n * 4, hidden]."""
    at, count = "model.vision_model.", pictures.shape[0]

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, parameters[f"{at}{name}.weight"], parameters[f"{at}{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        size = (shape.vision_hidden,)
        return F.layer_norm(x, size, parameters[f"{at}{name}.weight"], parameters[f"{at}{name}.bias"], 1e-6)

    def split(x: Tensor) -> Tensor:
        return x.view(count, shape.patches, shape.vision_heads, -1).transpose(1, 2)

    patch = parameters[f"{at}embeddings.patch_embedding.weight"]
    x = F.conv2d(pictures, patch, parameters[f"{at}embeddings.patch_embedding.bias"], stride=shape.patch)
    x = x.flatten(2).transpose(1, 2) + parameters[f"{at}embeddings.position_embedding.weight"]
    y, block = norm("encoder.layers.0.layer_norm1", x), "encoder.layers.0.self_attn."
    heads = [split(linear(f"{block}{name}_proj", y)) for name in ("q", "k", "v")]
    attended = F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(count, shape.patches, -1)
    x = x + linear(f"{block}out_proj", attended)
    y = linear("encoder.layers.0.mlp.fc1", norm("encoder.layers.0.layer_norm2", x))
    x = norm("post_layernorm", x + linear("encoder.layers.0.mlp.fc2", F.gelu(y, approximate="tanh")))
    side, factor = math.isqrt(shape.patches), shape.shuffle
    x = x.view(count, side // factor, factor, side // factor, factor, shape.vision_hidden)
    x = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, shape.vision_hidden * factor**2)
    return F.linear(x, parameters["model.connector.modality_projection.proj.weight"])


def read(parameters: Parameters, shape: Shape, ids: Tensor, pictures: Tensor | None, image_id: int) -> Tensor:
    """Token ids [rows, length] to the last hidden states [rows, length, hidden]."""
    x = F.embedding(ids, parameters["model.text_model.embed_tokens.weight"])
    if pictures is not None:
        seen = see(parameters, shape, pictures).to(x.dtype)
        x = x.masked_scatter((ids == image_id).unsqueeze(-1), seen)
    turns = _rotations(shape, ids.shape[1])
    for layer in range(shape.layers):
        at = f"model.text_model.layers.{layer}."
        y = _norm(x, parameters[f"{at}input_layernorm.weight"], shape)
        x = x + _attend(parameters, f"{at}self_attn.", shape, y, turns)
        y = _norm(x, parameters[f"{at}post_attention_layernorm.weight"], shape)
        gate = F.silu(F.linear(y, parameters[f"{at}mlp.gate_proj.weight"]))
        x = x + F.linear(
            gate * F.linear(y, parameters[f"{at}mlp.up_proj.weight"]), parameters[f"{at}mlp.down_proj.weight"]
        )
    return _norm(x, parameters["model.text_model.norm.weight"], shape)


def _norm(x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    return F.rms_norm(x, (shape.hidden,), weight, shape.norm_eps)


def _rotations(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    rates = shape.rope_base ** (-torch.arange(0, shape.head, 2) / shape.head)
    angles = torch.arange(length)[:, None] * rates[None, :]
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def _attend(parameters: Parameters, at: str, shape: Shape, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    rows, length, _ = x.shape

    def heads(name: str) -> Tensor:
        return F.linear(x, parameters[f"{at}{name}_proj.weight"]).view(rows, length, shape.heads, -1).transpose(1, 2)

    def turn(y: Tensor) -> Tensor:
        first, second = y.chunk(2, dim=-1)
        return y * turns[0].to(y.dtype) + torch.cat((-second, first), dim=-1) * turns[1].to(y.dtype)

    y = F.scaled_dot_product_attention(turn(heads("q")), turn(heads("k")), heads("v"), is_causal=True)
    return F.linear(y.transpose(1, 2).reshape(rows, length, -1), parameters[f"{at}o_proj.weight"])
