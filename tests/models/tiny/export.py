"""The model folder, as transformers and vLLM load it.

Decides every file of it. Must not know how the weights came to be.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.models.tiny.batches import PICTURE_DEVIATION, PICTURE_MEAN
from tests.models.tiny.network import Parameters, Shape
from tests.models.tiny.sample import IMAGE_TOKENS, TEMPLATE
from tests.models.tiny.tokenizer import END, PAD, token_id
from tests.models.tiny.training import EMBEDDING


def export(folder: Path, tokenizer: Tokenizer, shape: Shape, parameters: Parameters) -> None:
    """Write the folder; what is in it already is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in parameters.items()}
    weights["lm_head.weight"] = weights[EMBEDDING].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    shutil.copyfile(TEMPLATE, folder / "chat_template.jinja")
    for name, content in _texts(tokenizer, shape).items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def load_parameters(folder: Path) -> Parameters:
    """What `export` wrote, to train on."""
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    return {name: tensor.float().requires_grad_(True) for name, tensor in weights.items()}


def _texts(tokenizer: Tokenizer, shape: Shape) -> dict[str, dict[str, Any]]:
    special = {"eos_token": END, "pad_token": PAD}
    return {
        "config.json": _config(tokenizer, shape),
        "generation_config.json": {
            "eos_token_id": token_id(tokenizer, END),
            "pad_token_id": token_id(tokenizer, PAD),
        },
        "special_tokens_map.json": special,
        "tokenizer_config.json": special
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "processor_class": "Idefics3Processor",
            "model_max_length": shape.positions,
            "clean_up_tokenization_spaces": False,
            "added_tokens_decoder": _added_tokens(tokenizer),
        },
        "processor_config.json": {"processor_class": "Idefics3Processor", "image_seq_len": IMAGE_TOKENS},
        "preprocessor_config.json": _preprocessor(shape),
    }


def _added_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        str(index): {"content": token.content, "special": token.special}
        | dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
        for index, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }


def _preprocessor(shape: Shape) -> dict[str, Any]:
    """Any picture becomes one square, whatever its proportions."""
    return {
        "image_processor_type": "Idefics3ImageProcessor",
        "processor_class": "Idefics3Processor",
        "do_convert_rgb": True,
        "do_image_splitting": False,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [PICTURE_MEAN] * 3,
        "image_std": [PICTURE_DEVIATION] * 3,
        "max_image_size": {"longest_edge": shape.picture},
        "size": {"longest_edge": shape.picture},
        "resample": 2,
        "rescale_factor": 1 / 255,
    }


def _config(tokenizer: Tokenizer, shape: Shape) -> dict[str, Any]:
    end, pad = token_id(tokenizer, END), token_id(tokenizer, PAD)
    return {
        "architectures": ["Idefics3ForConditionalGeneration"],
        "model_type": "idefics3",
        "dtype": "bfloat16",
        "eos_token_id": end,
        "pad_token_id": pad,
        "image_token_id": token_id(tokenizer, "<image>"),
        "scale_factor": shape.shuffle,
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.hidden,
            "intermediate_size": shape.inner,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads,
            "head_dim": shape.head,
            "hidden_act": "silu",
            "max_position_embeddings": shape.positions,
            "rms_norm_eps": shape.norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_base},
            "rope_theta": shape.rope_base,
            "bos_token_id": None,
            "eos_token_id": end,
            "pad_token_id": pad,
            "tie_word_embeddings": False,
        },
        "vision_config": {
            "model_type": "idefics3_vision",
            "hidden_size": shape.vision_hidden,
            "intermediate_size": shape.vision_inner,
            "num_hidden_layers": 1,
            "num_attention_heads": shape.vision_heads,
            "num_channels": 3,
            "image_size": shape.picture,
            "patch_size": shape.patch,
            "hidden_act": "gelu_pytorch_tanh",
        },
    }
