"""The user's commands: everything that is done over HTTP with a login or a key.

Must not import edge or node; what both agree on is the wire (docs/wire.md). Exit codes are in failure.py.
"""

from __future__ import annotations

from shared.cli.user.commands.chat import chat
from shared.cli.user.commands.completion import completion
from shared.cli.user.commands.keys import keys
from shared.cli.user.commands.login import login, logout, whoami
from shared.cli.user.commands.models import models
from shared.cli.user.commands.requests import requests
from shared.cli.user.commands.usage import usage

__all__ = ["chat", "completion", "keys", "login", "logout", "models", "requests", "usage", "whoami"]
