"""Settings of a node: `[node]` and `[model]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from shared.node_hosts import PRIVATE, NodeHosts, host_of
from shared.redis import RedisSettings
from shared.settings import Section, require_pair
from shared.tracing import TracingSection

MODEL_ID = r"^b3os/[a-z0-9][a-z0-9._-]{0,63}$"
_NAMESERVER = re.compile(
    r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]+)\]|(?P<v4>[0-9.]+))(?::(?P<port>[0-9]{1,5}))?|(?P<v6>[0-9A-Fa-f:.]+)"
)


class NodeSection(Section):
    """Who this node is and where it listens.

    Attributes:
        edge_keys_file: JSON object of `kid` to Ed25519 public key in PEM; from a file of the operator's and never
            from Redis, since who can write Redis must not become an issuer.
        operator_port: `/healthz` and `/readyz`, on `operator_host` only.
        tls_cert_file, tls_key_file: chain and key in PEM, for TLS on the port for edges; read again at SIGHUP.
        client_ca_file: with it only clients with a certificate of this authority are let in: edges, and other nodes.
        peer_ca_file: the authority of other nodes with `https` URLs, which are shown this node's own certificate.
        engine_start_s: longest start of the engine. engine_silence_s: how long it may go without a step while it has
            requests, before it counts as hung and is started again; a step computes thousands of a prompt's tokens.
        drain_s: how long running answers may go on after SIGTERM.
        url: where edges and other nodes reach it, told in Redis; `http://HOST:PORT` where it is left out, and `https`
            with a certificate of its own.
        peer_hosts: networks and names where other nodes may be: who can write Redis sends no prompts elsewhere.
    """

    id: str = Field("n1", pattern=r"^[a-z0-9-]{1,32}$")
    host: str = "127.0.0.1"
    port: int = Field(7710, ge=0, le=65535)
    operator_host: str = "127.0.0.1"
    operator_port: int = Field(7711, ge=0, le=65535)
    edge_keys_file: Path = Path(".b3os/keys/edge-public.json")
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    client_ca_file: Path | None = None
    peer_ca_file: Path | None = None
    engine: Literal["vllm", "scripted"] = "vllm"
    engine_start_s: float = Field(1800, gt=0)
    engine_silence_s: float = Field(120, gt=0)
    drain_s: float = Field(30, ge=0)
    url: str | None = None
    peer_hosts: tuple[str, ...] = PRIVATE

    @field_validator("peer_hosts")
    @classmethod
    def _are_places(cls, peer_hosts: tuple[str, ...]) -> tuple[str, ...]:
        NodeHosts(peer_hosts)
        return peer_hosts

    @field_validator("url")
    @classmethod
    def _is_base_url(cls, url: str | None) -> str | None:
        if url is not None and host_of(url) is None:
            raise ValueError("must be http://HOST:PORT")
        return None if url is None else url.rstrip("/")

    @model_validator(mode="after")
    def _can_be_reached(self) -> NodeSection:
        if self.url is None and self.host in ("", "0.0.0.0", "::"):  # noqa: S104 - refused without a URL
            raise ValueError(f"url is needed where host is {self.host!r}: nobody can be sent there")
        return self

    def told_url(self) -> str:
        """What others are told."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "http" if self.tls_cert_file is None else "https"
        return self.url or f"{scheme}://{host}:{self.port}"

    @model_validator(mode="after")
    def _has_whole_pairs(self) -> NodeSection:
        require_pair(self, "tls_cert_file", "tls_key_file")
        if self.client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("client_ca_file needs tls_cert_file: clients show certificates in TLS only")
        return self


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


class EgressSection(Section):
    """How images are fetched from URLs. The defaults are the production's; tests change only what stands here.

    Attributes:
        environment: `B3OS_ENV`; only `dev` and `test` may open private networks.
        nameservers: `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; none means the system's.
        allow_networks: networks that are fetched from whatever the guard's tables say.
        deny_networks: networks that are never fetched from: this node's public address if it is behind a NAT, its
            sisters and edges, and a NAT64 prefix of the site.
        ca_file: the only roots that count, in PEM; none means the system's.
        ports: what URLs may name.
        step_s: longest for DNS, for TCP and TLS together, and between two reads.
        total_s: longest for one image, every redirect and the last byte included; and for its turn before that.
    """

    env_aliases: ClassVar[Mapping[str, str]] = {"B3OS_ENV": "environment"}

    environment: str = "production"
    nameservers: list[str] = Field(default_factory=list)
    allow_networks: list[IPv4Network | IPv6Network] = Field(default_factory=list)
    deny_networks: list[IPv4Network | IPv6Network] = Field(default_factory=list)
    ca_file: Path | None = None
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(default_factory=lambda: [443], min_length=1)
    step_s: float = Field(3, gt=0, le=60)
    total_s: float = Field(10, gt=0, le=120)
    max_image_bytes: int = Field(10_485_760, ge=1024, le=104_857_600)
    max_redirects: int = Field(3, ge=0, le=10)

    @field_validator("allow_networks")
    @classmethod
    def _only_where_no_stranger_calls(
        cls, networks: list[IPv4Network | IPv6Network], info: ValidationInfo
    ) -> list[IPv4Network | IPv6Network]:
        if networks and info.data.get("environment") not in ("dev", "test"):
            raise ValueError(
                "would let any caller reach these networks through this node; it is for tests, so B3OS_ENV has to be "
                "dev or test"
            )
        return networks

    @field_validator("nameservers")
    @classmethod
    def _are_nameservers(cls, nameservers: list[str]) -> list[str]:
        for text in nameservers:
            if not _is_nameserver(text):
                raise ValueError(f"{text!r} is not ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT")
        return nameservers

    @field_validator("ca_file")
    @classmethod
    def _is_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"{path} is not a file")
        return path


def _is_nameserver(text: str) -> bool:
    form = _NAMESERVER.fullmatch(text)
    if form is None:
        return False
    try:
        (IPv4Address if form["v4"] else IPv6Address)(form["v4"] or form["bracketed"] or form["v6"])
    except ValueError:
        return False
    return form["port"] is None or 1 <= int(form["port"]) <= 65535


class NodeSettings(BaseModel):
    """All that a node reads."""

    node: NodeSection
    model: ModelSection
    egress: EgressSection
    redis: RedisSettings
    tracing: TracingSection
