"""Settings of a node: `[node]` and `[model]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from shared.settings import Section

MODEL_ID = r"^b3os/[a-z0-9][a-z0-9._-]{0,63}$"


class NodeSection(Section):
    """Who this node is and where it listens.

    Attributes:
        edge_keys_file: JSON object of `kid` to Ed25519 public key in PEM; from a file of the operator's and never
            from Redis, since who can write Redis must not become an issuer.
        operator_port: `/healthz` and `/readyz`, on `operator_host` only.
        drain_s: how long running answers may go on after SIGTERM.
    """

    id: str = Field("n1", pattern=r"^[a-z0-9-]{1,32}$")
    host: str = "127.0.0.1"
    port: int = Field(7710, ge=0, le=65535)
    operator_host: str = "127.0.0.1"
    operator_port: int = Field(7711, ge=0, le=65535)
    edge_keys_file: Path = Path(".b3os/keys/edge-public.json")
    engine: Literal["vllm", "scripted"] = "vllm"
    drain_s: float = Field(30, ge=0)


class ModelSection(Section):
    """The model that this node serves. Whatever is left out comes from `node/catalog/`, by the source.

    Attributes:
        source: a folder or hub id that vLLM loads; none means the default for this machine.
        served_id: the id on the wire, `b3os/<name>`.
        context_tokens: the window; none means the model's own.
        input_nano_usd_per_token, output_nano_usd_per_token: prices in integer nano-dollars.
        engine: further vLLM engine arguments by name; they win over ours.
    """

    env_aliases: ClassVar[Mapping[str, str]] = {"B3OS_MODEL": "source"}

    source: str | None = None
    served_id: str | None = Field(None, pattern=MODEL_ID)
    display_name: str | None = None
    context_tokens: int | None = Field(None, ge=16)
    max_request_bytes: int = Field(10_485_760, ge=1024)
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    chat_template: Path | None = None
    input_nano_usd_per_token: int = Field(0, ge=0)
    output_nano_usd_per_token: int = Field(0, ge=0)
    engine: dict[str, Any] = Field(default_factory=dict)


class NodeSettings(BaseModel):
    """All that a node reads."""

    node: NodeSection
    model: ModelSection
