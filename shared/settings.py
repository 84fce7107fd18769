"""Typed settings from a TOML file and the environment, with all their faults told at once.

Decides how a setting is named and which source wins: the variable `B3OS_<SECTION>_<FIELD>` over the field of the
table `[section]`. Must not know any setting, nor read the environment by itself: the caller passes it.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

PREFIX = "B3OS_"


class SettingsError(Exception):
    """The settings can't be used; the message has one line per fault, fit for an operator."""


class Section(BaseModel):
    """One table of settings. `env_aliases` maps a whole variable name to a field (`B3OS_MODEL` to `source`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
    env_aliases: ClassVar[Mapping[str, str]] = {}


S = TypeVar("S", bound=BaseModel)


def require_pair(section: Section, first: str, second: str) -> None:
    """For a validator: two settings that mean something together only.

    Raises:
        ValueError: one of them is there alone.
    """
    if (getattr(section, first) is None) != (getattr(section, second) is None):
        raise ValueError(f"{first} and {second} go together")


def read_file(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        SettingsError: the file can't be read or isn't TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from None


def config_tables(environ: Mapping[str, str]) -> dict[str, Any]:
    """The tables of the file that `B3OS_CONFIG` names, else of `b3os.toml` in this folder, else none."""
    named = environ.get("B3OS_CONFIG")
    path = Path(named or "b3os.toml")
    return read_file(path) if named or path.exists() else {}


def load_settings(kind: type[S], environ: Mapping[str, str], tables: Mapping[str, Any]) -> S:
    """Build `kind`, a model whose every field is a `Section`.

    Raises:
        SettingsError: any value is wrong, or a variable with a section's prefix names no setting.
    """
    values: dict[str, dict[str, Any]] = {}
    faults: list[str] = []
    for name, field in kind.model_fields.items():
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, Section)):
            raise TypeError(f"{kind.__name__}.{name} is not a Section")
        from_environment, unknown = _environment_of(name, section, environ)
        faults += unknown
        table = tables.get(name, {})
        if isinstance(table, Mapping):
            values[name] = {**table, **from_environment}
        else:
            faults.append(f"{name}: must be a table")
    try:
        settings = kind.model_validate(values)
    except ValidationError as error:
        faults += [
            _describe(fault["loc"], fault["msg"].removeprefix("Value error, "))
            for fault in error.errors()
            if fault["loc"][0] in values
        ]
    else:
        if not faults:
            return settings
    raise SettingsError("\n".join(faults))


def _environment_of(
    name: str, section: type[Section], environ: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    prefix = f"{PREFIX}{name.upper()}_"
    known = {prefix + field.upper(): field for field in section.model_fields} | dict(section.env_aliases)
    values = {field: _decode(environ[variable]) for variable, field in known.items() if variable in environ}
    unknown = []
    for variable in environ:
        if variable.startswith(prefix) and variable not in known:
            near = difflib.get_close_matches(variable, known, n=1)
            unknown.append(f"{variable}: no such setting" + (f"; did you mean {near[0]}?" if near else ""))
    return values, unknown


def _decode(text: str) -> Any:
    """Tables and lists are written as JSON in a variable; anything else stays text for pydantic to read."""
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _describe(loc: tuple[int | str, ...], message: str) -> str:
    path = ".".join(map(str, loc))
    variable = PREFIX + "_".join(map(str, loc[:2])).upper()
    return f"{path} ({variable}): {message}"
