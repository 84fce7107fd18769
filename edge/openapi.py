"""The description of the public API: the file of this repository, as it is and as JSON.

Decides where the file lies and how it is cached. Must not know what it says: tests hold it to routes and wire.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import orjson
import yaml
from aiohttp import web

_IN_WHEEL = Path(__file__).with_name("openapi.yaml")  # pyproject.toml puts it there
_IN_CHECKOUT = Path(__file__).parents[1] / "docs" / "openapi.yaml"
_CACHE = "public, max-age=300"


@dataclass(frozen=True, slots=True)
class Document:
    """One form of the description; `etag` names its bytes."""

    body: bytes
    content_type: str
    etag: str

    async def serve(self, request: web.Request) -> web.Response:
        """The document, or the news that the client has it (RFC 9110 §13.1.2)."""
        held = {tag.value for tag in request.if_none_match or ()}
        if held & {self.etag, "*"}:
            response = web.Response(status=304)
        else:
            response = web.Response(body=self.body, content_type=self.content_type)
        response.etag = self.etag
        response.headers["Cache-Control"] = _CACHE
        return response


def load_documents() -> dict[str, Document]:
    """Both forms by path, read and converted once.

    Raises:
        OSError: the file is missing, and so is a part of this package.
    """
    body = (_IN_WHEEL if _IN_WHEEL.is_file() else _IN_CHECKOUT).read_bytes()
    as_json = orjson.dumps(yaml.load(body, yaml.CSafeLoader))
    return {
        "/v1/openapi.yaml": _build_document(body, "application/yaml"),
        "/v1/openapi.json": _build_document(as_json, "application/json"),
    }


def _build_document(body: bytes, content_type: str) -> Document:
    return Document(body, content_type, hashlib.sha256(body).hexdigest()[:16])
