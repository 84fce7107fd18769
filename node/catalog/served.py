"""Which model a node serves, and under which name.

Decides the defaults by hardware and by source. Must not load anything: `smollm2.py` prepares, the engine loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from node.catalog import smollm2
from node.settings import ModelSection

GPU_MODEL = "Qwen/Qwen3.5-9B"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as it is served.

    Attributes:
        served_id: the id on the wire. source: the folder or hub id that vLLM loads.
        context_tokens: the window, or None for the model's own.
        reasoning_parser, tool_parser: names of vLLM's parsers.
        input_nano_usd_per_token, output_nano_usd_per_token: prices in integer nano-dollars.
        engine: vLLM engine arguments of the operator's; they win over ours.
    """

    served_id: str
    display_name: str
    source: str
    context_tokens: int | None = None
    max_request_bytes: int = 10_485_760
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    chat_template: Path | None = None
    input_nano_usd_per_token: int = 0
    output_nano_usd_per_token: int = 0
    engine: Mapping[str, Any] = field(default_factory=dict)


def resolve_model(section: ModelSection, *, has_gpu: bool, models_dir: Path) -> ServedModel:
    """Fill what the settings leave open: by hardware without a source, by the source's name with one."""
    if section.source is not None:
        defaults = ServedModel(_id_of(section.source), Path(section.source).name, section.source)
    elif has_gpu:
        defaults = ServedModel(
            "b3os/qwen3.5-9b", "Qwen3.5 9B", GPU_MODEL, reasoning_parser="qwen3", tool_parser="qwen3_coder"
        )
    else:
        defaults = ServedModel(
            "b3os/smollm2-135m",
            "SmolLM2 135M Instruct",
            str(smollm2.folder(models_dir)),
            context_tokens=smollm2.CONTEXT_TOKENS,
            tool_parser="hermes",
            chat_template=smollm2.TEMPLATE,
        )
    return _with_settings(defaults, section)


def scripted_model(section: ModelSection) -> ServedModel:
    """The name under which canned pieces are served, so that nobody takes them for a model."""
    served = ServedModel("b3os/scripted", "Scripted pieces", "scripted")
    return replace(
        served,
        served_id=section.served_id or served.served_id,
        max_request_bytes=section.max_request_bytes,
        input_nano_usd_per_token=section.input_nano_usd_per_token,
        output_nano_usd_per_token=section.output_nano_usd_per_token,
        engine=section.engine,
    )


def _with_settings(model: ServedModel, section: ModelSection) -> ServedModel:
    return ServedModel(
        served_id=section.served_id or model.served_id,
        display_name=section.display_name or model.display_name,
        source=model.source,
        context_tokens=section.context_tokens or model.context_tokens,
        max_request_bytes=section.max_request_bytes,
        reasoning_parser=section.reasoning_parser or model.reasoning_parser,
        tool_parser=section.tool_parser or model.tool_parser,
        chat_template=section.chat_template or model.chat_template,
        input_nano_usd_per_token=section.input_nano_usd_per_token,
        output_nano_usd_per_token=section.output_nano_usd_per_token,
        engine=section.engine,
    )


def _id_of(source: str) -> str:
    """`b3os/<name>` from the last part of a folder or hub id."""
    name = re.sub(r"[^a-z0-9._-]+", "-", Path(source).name.lower()).strip("._-")
    return f"b3os/{name[:64] or 'model'}"
