"""The requests of real clients that lie in `clients/`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

FOLDER = Path(__file__).parent / "clients"
_SECRET = ("authorization", "x-api-key")


@dataclass(frozen=True)
class Recording:
    """One request; `name` is its file's."""

    name: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def credential_header(self) -> str | None:
        """Which header carried the key."""
        return next((name for name in self.headers if name.lower() in _SECRET), None)

    def other_headers(self) -> dict[str, str]:
        return {name: value for name, value in self.headers.items() if name.lower() not in _SECRET}

    def body_for(self, model: str) -> Any:
        """The body, asking for a model that is served, and for no image of another machine's."""
        if not isinstance(self.body, dict) or "model" not in self.body:
            return self.body
        text = json.dumps({**self.body, "model": model})
        return json.loads(text.replace("https://example.com/", "https://localhost/"))


def load_recordings() -> list[Recording]:
    """All, by name."""
    found = []
    for file in sorted(FOLDER.glob("*.json")):
        data = json.loads(file.read_text())
        found.append(Recording(file.stem, *(data[name] for name in ("method", "path", "query", "headers", "body"))))
    return found
