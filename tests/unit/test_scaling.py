"""What the documents for operators say of vLLM's arguments, of times, and of our own settings."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from edge.settings import EdgeSection, EdgeSettings
from node.settings import NodeSettings
from shared.settings import load_settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("scaling", "docker", "operations", "settings", "metrics")
TEXTS = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in DOCUMENTS}
_OUTSIDE = {"B3OS_HOME", "B3OS_CONFIG", "B3OS_DEV_REDIS_PORT"}


def engine_arguments() -> set[str]:
    """Names of the arguments of the installed vLLM, read from its source: to import it takes seconds."""
    vllm = importlib.util.find_spec("vllm")
    assert vllm is not None
    assert vllm.origin is not None
    tree = ast.parse((Path(vllm.origin).parent / "engine" / "arg_utils.py").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        item.target.id
        for name in ("EngineArgs", "AsyncEngineArgs")
        for item in classes[name].body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def variables_of(kind: type[BaseModel]) -> set[str]:
    found = set()
    for name, field in kind.model_fields.items():
        section = field.annotation
        assert isinstance(section, type)
        assert issubclass(section, BaseModel)
        found |= {f"B3OS_{name}_{setting}".upper() for setting in section.model_fields}
        found |= set(getattr(section, "env_aliases", {}))
    return found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_engine_arguments_are_vllm_s_and_can_be_set(document: str) -> None:
    texts = re.findall(r"B3OS_MODEL_ENGINE(?:=|: )'(\{.*?\})'", TEXTS[document])
    assert texts or document not in ("scaling", "docker")
    known = engine_arguments()
    for text in texts:
        settings = load_settings(NodeSettings, {"B3OS_MODEL_ENGINE": text}, {})
        assert settings.model.engine == json.loads(text)
        assert set(settings.model.engine) <= known


def test_the_other_arguments_that_are_named_are_vllm_s_too() -> None:
    part = TEXTS["scaling"].partition("## A model that is larger")[2].partition("\n## ")[0]
    named = {
        name for name in re.findall(r"`\{?\"?([a-z]+(?:_[a-z]+)+)\"?[^`]*`", part) if not name.startswith("b3os")
    }
    ours_or_docker_s = {"shm_size"}
    assert {"max_num_seqs", "node_rank", "gpu_memory_utilization"} <= named
    assert named - ours_or_docker_s <= engine_arguments()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_variable_of_ours_that_is_named_is_a_setting(document: str) -> None:
    named = {name for name in re.findall(r"\bB3OS_[A-Z0-9_]+(?!…)\b", TEXTS[document]) if not name.endswith("_")}
    assert named - variables_of(EdgeSettings) - variables_of(NodeSettings) <= _OUTSIDE


def test_balancers_wait_longer_than_edges_and_keep_connections_for_less() -> None:
    edge = {name: field.get_default() for name, field in EdgeSection.model_fields.items()}
    silent_s = edge["head_s"] + edge["chunk_s"]
    text = TEXTS["scaling"]
    [nginx], [client], [server] = (
        re.findall(rf"{name} (\d+)s", text) for name in ("proxy_read_timeout", "timeout client", "timeout server")
    )
    assert min(int(nginx), int(client), int(server)) > silent_s
    assert f"longer than {silent_s:.0f} s" in text
    kept = [int(each) for each in re.findall(r"(?:keepalive_timeout|http-keep-alive) (\d+)s", text)]
    assert len(kept) == 2
    assert max(kept) < edge["keepalive_s"]
    [idle] = re.findall(r"Idle timeout (\d+) s", text)
    [keepalive] = re.findall(r"B3OS_EDGE_KEEPALIVE_S=(\d+)", text)
    assert silent_s < int(idle) < int(keepalive)
    assert f"{edge['max_request_bytes'] >> 20}m;" in text
