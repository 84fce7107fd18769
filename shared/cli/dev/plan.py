"""What `b3os dev` runs: ports, files below the state folder, and the environment of every child.

Pure. Must not know how children are started.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HOST = "127.0.0.1"
NODE_ID = "n1"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for. Operator ports are the public ports + 1; `home` is absolute."""

    engine: Literal["vllm", "scripted"]
    model: str | None
    home: Path
    edge_port: int
    node_port: int
    redis_port: int

    def ports(self) -> dict[int, str]:
        """Every port, with who needs it and how to choose another.

        Raises:
            ValueError: two of them are one, or out of range; the message is a sentence.
        """
        edge, node, redis = ("edge", "edge-port"), ("node", "node-port"), ("Redis", "redis-port")
        wanted = [
            (self.edge_port, edge),
            (self.edge_port + 1, edge),
            (self.node_port, node),
            (self.node_port + 1, node),
        ]
        found: dict[int, str] = {}
        for port, (who, option) in [*wanted, (self.redis_port, redis)]:
            if not 1 <= port <= 65535:
                raise ValueError(f"port {port} for the {who} is not between 1 and 65535 (--{option})")
            if port in found:
                raise ValueError(f"port {port} is asked for twice; each of edge and node also takes its port + 1")
            found[port] = f"the {who} needs it; --{option} chooses another"
        return found

    @property
    def edge_url(self) -> str:
        """Where clients knock."""
        return f"http://{HOST}:{self.edge_port}"

    @property
    def node_url(self) -> str:
        """Where the edge knocks."""
        return f"http://{HOST}:{self.node_port}"

    @property
    def base_url(self) -> str:
        """What goes into an SDK."""
        return f"{self.edge_url}/v1/infer"

    @property
    def edge_operator_url(self) -> str:
        """`/healthz` and `/readyz` of the edge."""
        return f"http://{HOST}:{self.edge_port + 1}"

    @property
    def node_operator_url(self) -> str:
        """`/healthz` and `/readyz` of the node."""
        return f"http://{HOST}:{self.node_port + 1}"

    @property
    def private_key(self) -> Path:
        """With it the edge signs node tokens."""
        return self.home / "keys" / "edge-private.pem"

    @property
    def public_keys(self) -> Path:
        """With it the node verifies them."""
        return self.home / "keys" / "edge-public.json"

    @property
    def facts_file(self) -> Path:
        """dev.json: for programs, what the terminal shows to people."""
        return self.home / "dev.json"

    def log(self, name: str) -> Path:
        """Where a child's output goes."""
        return self.home / "logs" / f"{name}.log"


def environment_of(plan: Plan, redis_url: str) -> dict[str, str]:
    """The variables of ours that every child gets."""
    variables = {
        "B3OS_HOME": str(plan.home),
        "B3OS_REDIS_URL": redis_url,
        "B3OS_EDGE_HOST": HOST,
        "B3OS_EDGE_PORT": str(plan.edge_port),
        "B3OS_EDGE_OPERATOR_HOST": HOST,
        "B3OS_EDGE_OPERATOR_PORT": str(plan.edge_port + 1),
        "B3OS_EDGE_NODES": "{}",  # the edge finds the node as any edge does, by what it tells in Redis
        "B3OS_EDGE_SIGNING_KEY_FILE": str(plan.private_key),
        "B3OS_NODE_ID": NODE_ID,
        "B3OS_NODE_HOST": HOST,
        "B3OS_NODE_PORT": str(plan.node_port),
        "B3OS_NODE_OPERATOR_HOST": HOST,
        "B3OS_NODE_OPERATOR_PORT": str(plan.node_port + 1),
        "B3OS_NODE_EDGE_KEYS_FILE": str(plan.public_keys),
        "B3OS_NODE_ENGINE": plan.engine,
    }
    return variables if plan.model is None else variables | {"B3OS_MODEL": plan.model}
