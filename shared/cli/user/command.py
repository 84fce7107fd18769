"""What all commands of the user's share: the server, the credential, `--json`, and how Ctrl-C ends them.

Decides which source wins: the option, then the variable, then the file. Reads the environment once a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click

from shared.cli.user.address import Address, parse_address
from shared.cli.user.api import Api
from shared.cli.user.console import note, note_stop
from shared.cli.user.credentials import CredentialFile, config_folder
from shared.cli.user.failure import INTERRUPTED, NOT_LOGGED_IN, USAGE, Failure

KEY_VARIABLE = "B3OS_API_KEY"
_TOKEN = re.compile(r"[!-~]{1,512}")


@dataclass(frozen=True)
class Session:
    """One run of a command: whom it asks, with what, and how it answers."""

    named_url: str | None
    insecure_http: bool
    as_json: bool
    environ: Mapping[str, str]
    ends_login: bool = False

    @cached_property
    def file(self) -> CredentialFile:
        """Where tokens are kept."""
        return CredentialFile(config_folder(self.environ), forgiving=self.ends_login)

    @cached_property
    def address(self) -> Address:
        """The server.

        Raises:
            Failure: none is named, or the name can't be used.
        """
        url = self.named_url or self.file.current_url()
        if url is None:
            raise Failure(
                "no server is named: give --url, set B3OS_URL, or log in with `b3os login --url URL`", USAGE
            )
        return parse_address(url, insecure_http=self.insecure_http)

    @property
    def key_of_environment(self) -> str | None:
        """`B3OS_API_KEY`, which wins over the file.

        Raises:
            Failure: it can be no key. It is not told back.
        """
        key = self.environ.get(KEY_VARIABLE)
        if key and not is_token(key):
            raise Failure(f"{KEY_VARIABLE} holds no key: keys are ASCII without spaces", USAGE)
        return key or None

    def api(self) -> Api:
        """The server, asked with a credential.

        Raises:
            Failure: there is none.
        """
        token = self.key_of_environment or self.file.token_of(self.address.url)
        if token is None:
            words = f"not logged in to {self.address.url}; run `b3os login`, or set {KEY_VARIABLE}"
            raise Failure(words, NOT_LOGGED_IN)
        if not is_token(token):
            raise Failure(f"{self.file.path} is damaged; `b3os logout` removes it")
        return Api(self.address, token)


class UserCommand(click.Command):
    """A command against a server: its function gets a `Session` in front of its own parameters."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(["--url"], envvar="B3OS_URL", show_envvar=True, help="The server; else the last login's."),
            click.Option(["--insecure-http"], is_flag=True, help="Send the key in clear to other machines."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, with all that the server sends."),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; a failure is a sentence and a code, and an interruption likewise."""
        url, insecure_http, as_json = (ctx.params.pop(name) for name in ("url", "insecure_http", "as_json"))
        ctx.obj = Session(url or None, insecure_http, as_json, os.environ)
        try:
            return super().invoke(ctx)
        except Failure as failure:
            note(f"Error: {failure.message}")
            ctx.exit(failure.exit_code)
        except KeyboardInterrupt:
            note_stop()
            ctx.exit(INTERRUPTED)


def is_token(text: str) -> bool:
    """Whether it can stand in a header."""
    return _TOKEN.fullmatch(text) is not None
