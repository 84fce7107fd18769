"""Settings: the environment wins over the file, and every fault is told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from node.settings import NodeSettings
from shared.settings import Section, SettingsError, config_tables, load_settings


class Web(Section):
    host: str = "127.0.0.1"
    port: int = 80
    nodes: dict[str, str] = {}  # noqa: RUF012  pydantic copies it


class Settings(BaseModel):
    web: Web


def load(environ: dict[str, str], tables: dict[str, Any] | None = None) -> Web:
    return load_settings(Settings, environ, tables or {}).web


def test_the_environment_wins_over_the_file_and_the_file_over_the_default() -> None:
    web = load({"B3OS_WEB_PORT": "81"}, {"web": {"port": 82, "host": "::1"}})
    assert (web.host, web.port) == ("::1", 81)


def test_tables_are_written_as_json() -> None:
    assert load({"B3OS_WEB_NODES": '{"n1": "http://127.0.0.1:1"}'}).nodes == {"n1": "http://127.0.0.1:1"}


def test_all_faults_are_told_at_once_with_the_names_of_their_variables() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"B3OS_WEB_PROT": "1", "B3OS_WEB_PORT": "eighty"}, {"web": {"hosts": "a"}})
    text = str(caught.value)
    assert "B3OS_WEB_PROT: no such setting; did you mean B3OS_WEB_PORT?" in text
    assert "web.port (B3OS_WEB_PORT): " in text
    assert "web.hosts (B3OS_WEB_HOSTS): " in text


def test_a_table_that_is_no_table_is_a_fault_and_not_a_traceback() -> None:
    with pytest.raises(SettingsError, match="web"):
        load({}, {"web": 5})


def test_the_model_is_named_by_the_short_variable() -> None:
    settings = load_settings(NodeSettings, {"B3OS_MODEL": "/models/mine", "B3OS_MODEL_ENGINE": '{"seed": 1}'}, {})
    assert (settings.model.source, settings.model.engine) == ("/models/mine", {"seed": 1})


def test_a_file_that_is_named_must_exist_and_be_toml(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        config_tables({"B3OS_CONFIG": str(tmp_path / "none.toml")})
    (tmp_path / "bad.toml").write_text("= 1")
    with pytest.raises(SettingsError, match=r"bad\.toml"):
        config_tables({"B3OS_CONFIG": str(tmp_path / "bad.toml")})
