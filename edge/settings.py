"""Settings of an edge: `[edge]` and `[redis]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator, model_validator

from edge.auth.hosts import is_loopback, normalize_host
from edge.budget import largest_common_body_bytes
from shared.node_hosts import PRIVATE, NodeHosts
from shared.redis import RedisSettings
from shared.settings import Section, require_pair
from shared.tracing import TracingSection

_NODE_ID = re.compile(r"[a-z0-9-]{1,32}")


class EdgeSection(Section):
    """Where the edge listens, whom it forwards to, and how long it waits.

    Attributes:
        operator_port: `/healthz` and `/readyz`, on `operator_host` only.
        tls_cert_file, tls_key_file: chain and key in PEM, for TLS on the public port; read again at SIGHUP.
        nodes: node id to base URL; the id is the one that the node verifies as its token's audience. With any, there
            are no others; without, nodes are those that tell of themselves in Redis.
        node_hosts: networks and names where the latter may be: who can write Redis sends no prompts elsewhere.
        signing_key_file: Ed25519 private key in PEM, for node tokens; `b3os edge keygen` makes one.
        node_ca_file: the authority of nodes with `https` URLs, in PEM; none means the system's.
        node_client_cert_file, node_client_key_file: what such nodes are shown; read again at SIGHUP.
        max_request_bytes: the edge's own cap on a body. It stands above the nodes' caps per model, whose refusal
            names the model's limit and comes in the node's shape.
        max_bodies_bytes: all bodies that are held at once, until their nodes begin to answer.
        max_bodies_per_organization_bytes: how much of that one organization may hold: one body at least.
        lame_duck_s: how long it takes requests after SIGTERM, not ready any more, until balancers have noticed.
        drain_s: how long running answers may go on after that.
        keepalive_s: how long an idle connection of a client is kept; longer than a proxy in front keeps it.
        connect_s, head_s, chunk_s: how long a node may take to accept, to begin its answer, and between two chunks.
        stalled_client_s: how long a client may take nothing before it is cut.
        dashboard_hosts: the names under which people use the service: sessions exist there alone. Without any, this
            machine's own with `port`.
        api_hosts: names for programs, where a cookie is nothing. So is every name that stands nowhere; these are
            listed so that none of them can become a dashboard's by mistake.
        trusted_proxies: how many proxies in front append to `X-Forwarded-For`.
        login_window_s, login_failures_per_address, login_failures_per_account: how many log-ins may fail in a window.
        device_logins_per_address: how many log-ins by device an address may begin in ten minutes.
        unknown_credentials_per_address: how many keys and sessions that nobody has an address may show in a minute.
        management_per_minute, management_burst: how often one caller may ask outside inference, in the long run and
            at once after a pause. `edge/api/gate.py` says who is one, and how much more often he may ask for models.
    """

    env_aliases: ClassVar[Mapping[str, str]] = {
        "B3OS_DASHBOARD_HOSTS": "dashboard_hosts",
        "B3OS_API_HOSTS": "api_hosts",
    }

    host: str = "127.0.0.1"
    port: int = Field(7700, ge=0, le=65535)
    operator_host: str = "127.0.0.1"
    operator_port: int = Field(7701, ge=0, le=65535)
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    nodes: dict[str, str] = Field(default_factory=dict)
    node_hosts: tuple[str, ...] = PRIVATE
    signing_key_file: Path = Path(".b3os/keys/edge-private.pem")
    node_ca_file: Path | None = None
    node_client_cert_file: Path | None = None
    node_client_key_file: Path | None = None
    max_request_bytes: int = Field(33_554_432, ge=1024)
    max_bodies_bytes: int = Field(268_435_456, ge=1024)
    max_bodies_per_organization_bytes: int = Field(67_108_864, ge=1024)
    lame_duck_s: float = Field(0, ge=0)
    drain_s: float = Field(30, ge=0)
    keepalive_s: float = Field(75, gt=0)
    connect_s: float = Field(2, gt=0)
    head_s: float = Field(600, gt=0)
    chunk_s: float = Field(60, gt=0)
    stalled_client_s: float = Field(120, gt=0)
    dashboard_hosts: tuple[str, ...] = ()
    api_hosts: tuple[str, ...] = ()
    trusted_proxies: int = Field(0, ge=0, le=8)
    login_window_s: float = Field(900, gt=0)
    login_failures_per_address: int = Field(50, ge=1)
    login_failures_per_account: int = Field(10, ge=1)
    device_logins_per_address: int = Field(60, ge=1)
    unknown_credentials_per_address: int = Field(600, ge=1)
    management_per_minute: int = Field(600, ge=1)
    management_burst: int = Field(60, ge=1)

    @field_validator("nodes")
    @classmethod
    def _are_nodes(cls, nodes: dict[str, str]) -> dict[str, str]:
        for node_id, url in nodes.items():
            if not _NODE_ID.fullmatch(node_id):
                raise ValueError(f"{node_id!r} is not a node id")
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
                raise ValueError(f"the URL of {node_id} must be http://HOST:PORT")
        return {node_id: url.rstrip("/") for node_id, url in nodes.items()}

    @field_validator("node_hosts")
    @classmethod
    def _are_places(cls, node_hosts: tuple[str, ...]) -> tuple[str, ...]:
        NodeHosts(node_hosts)
        return node_hosts

    @field_validator("dashboard_hosts", "api_hosts", mode="before")
    @classmethod
    def _are_hosts(cls, hosts: Any) -> Any:
        """A list, or names with commas between them."""
        names = [name for name in hosts.split(",") if name.strip()] if isinstance(hosts, str) else hosts
        return tuple(normalize_host(name) for name in names) if isinstance(names, list | tuple) else names

    @model_validator(mode="after")
    def _has_whole_pairs(self) -> EdgeSection:
        require_pair(self, "tls_cert_file", "tls_key_file")
        require_pair(self, "node_client_cert_file", "node_client_key_file")
        return self

    @model_validator(mode="after")
    def _keeps_hosts_apart(self) -> EdgeSection:
        for name in set(self.dashboard_hosts) & set(self.api_hosts):
            if not is_loopback(name):
                raise ValueError(
                    f"dashboard_hosts and api_hosts both have {name}: a cookie would count on the API host"
                )
        return self

    @model_validator(mode="after")
    def _has_room_for_a_body(self) -> EdgeSection:
        for name, room_bytes in (
            ("max_bodies_bytes", largest_common_body_bytes(self.max_bodies_bytes)),
            ("max_bodies_per_organization_bytes", self.max_bodies_per_organization_bytes),
        ):
            if room_bytes < self.max_request_bytes:
                raise ValueError(f"{name} has no room for a body of max_request_bytes")
        return self

    def list_dashboard_hosts(self) -> tuple[str, ...]:
        """The names of the dashboard, those of a development machine included where there are no others."""
        return self.dashboard_hosts or (f"127.0.0.1:{self.port}", f"localhost:{self.port}", f"[::1]:{self.port}")


class EdgeSettings(BaseModel):
    """All that an edge reads."""

    edge: EdgeSection
    redis: RedisSettings
    tracing: TracingSection


class StoreSettings(BaseModel):
    """All that the operators' key commands read."""

    redis: RedisSettings
