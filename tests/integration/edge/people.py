"""People who log in, as a browser's page or as anything else that sends HTTP."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any

import aiohttp

from edge.auth.accounts import User
from edge.auth.passwords import hash_password
from edge.auth.session_cookie import NAME
from edge.auth.store import RecordExists
from shared.ids import new_record_id
from tests.integration.edge.parts import Edge

PASSWORD = "correct horse battery"
LOGIN, LOGOUT, SESSION = "/v1/auth/login", "/v1/auth/logout", "/v1/auth/session"
SWITCH, CHANGE, KEYS = "/v1/auth/organization", "/v1/auth/password", "/v1/keys"


@functools.cache
def hashed(password: str = PASSWORD) -> str:
    return hash_password(password)


async def make_user(edge: Edge, *places: tuple[str, str], status: str = "active") -> User:
    """A user with `PASSWORD` and these (organization, role), each with the project `main`."""
    user_id = new_record_id("usr")
    user = User(user_id, f"{user_id}@example.com", "Ada", status, hashed(), 1, 1)
    await edge.accounts.create_user(user)
    for org, role in places:
        try:
            await edge.accounts.create_organization(org, 1)
            await edge.accounts.create_project(org, "main")
        except RecordExists:
            pass
        await edge.accounts.set_role(org, user.id, role)
    return user


async def written_under(edge: Edge, pattern: str) -> list[str]:
    """Names and values of all hashes, strings and sets in Redis that match."""
    readers: dict[Any, Any] = {
        "hash": edge.redis.hgetall,
        "string": edge.redis.get,
        "set": edge.redis.smembers,
    }
    return [
        f"{name!r} {await readers[await edge.redis.type(name)](name)!r}" for name in await edge.redis.keys(pattern)
    ]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    set_cookie: str | None
    raw: bytes
    body: Any

    @property
    def cookie(self) -> str:
        """The value of the cookie that was set."""
        assert self.set_cookie is not None
        return str(SimpleCookie(self.set_cookie)[NAME].value)

    def problem(self) -> tuple[int, str, str | None]:
        """Status, code and param of a problem (RFC 9457)."""
        assert self.headers["Content-Type"] == "application/problem+json"
        assert {"type", "title", "status", "detail", "instance", "code"} <= set(self.body)
        assert self.body["instance"] == self.headers["x-request-id"]
        assert self.body["status"] == self.status
        return self.status, self.body["code"], self.body.get("param")


@dataclass
class Page:
    """A page of the dashboard: it has a session and sends what browsers send. Empty headers are left out."""

    client: aiohttp.ClientSession
    cookie: str = ""
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"Sec-Fetch-Site": "same-origin"})

    async def send(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send with the cookie and the token; `_` in names of headers stands for `-`."""
        sent = {**self.headers, "x-b3os-csrf": self.csrf, "Cookie": f"{NAME}={self.cookie}" if self.cookie else ""}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        chosen = {name: value for name, value in sent.items() if value}
        async with self.client.request(
            method, path, headers=chosen, json=body, cookies=None, allow_redirects=False
        ) as response:
            raw = await response.read()
            return Answer(
                response.status,
                response.headers,
                response.headers.get("Set-Cookie"),
                raw,
                await response.json(content_type=None) if raw else None,
            )

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, **headers)

    async def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return await self.send("POST", path, body, **headers)

    def take(self, answer: Answer) -> Answer:
        """Go on with the session that was given."""
        assert answer.status == 200, answer.raw
        self.cookie, self.csrf = answer.cookie, answer.body["csrf_token"]
        return answer

    async def log_in(self, user: User, password: str = PASSWORD, **fields: str) -> Answer:
        """Log in, and go on with that session."""
        return self.take(await self.post(LOGIN, {"email": user.email, "password": password, **fields}))
