"""What `b3os dev` prints and writes when the service is ready.

Pure. Must not know how it came up.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass

# With temperature 0 a small model answers it rightly every time; the SDK's own signature has none since 2.0.
_QUESTION = "What is the capital of France?"


@dataclass(frozen=True, slots=True)
class Facts:
    """What dev.json holds, by its names there."""

    base_url: str
    api_key: str
    model: str
    edge_url: str
    node_url: str
    redis_url: str
    edge_operator_url: str
    node_operator_url: str

    def as_json(self) -> dict[str, str]:
        """All fields by name."""
        return asdict(self)


def render_welcome(facts: Facts, python: str) -> str:
    """Base URL, key, and three things to paste. `python` is an interpreter that has the SDK."""
    blocks = (
        f"base URL  {facts.base_url}\nAPI key   {facts.api_key}\nmodel     {facts.model}",
        f"# curl\n{render_curl(facts)}",
        f"# Anthropic's Python SDK\n{render_python(facts, python)}",
        f"# Claude Code (docs/claude-code.md)\n{render_claude_code(facts)}",
    )
    return "\n\n".join(blocks)


def render_curl(facts: Facts) -> str:
    """One message over the bare wire."""
    messages = [{"role": "user", "content": _QUESTION}]
    body = {"model": facts.model, "max_tokens": 64, "temperature": 0, "messages": messages}
    return f"""\
curl {facts.base_url}/v1/messages \\
  -H "Authorization: Bearer {facts.api_key}" \\
  -H "Content-Type: application/json" \\
  -d '{json.dumps(body)}'"""


def render_python(facts: Facts, python: str) -> str:
    """The same through the official SDK."""
    return f"""\
{shlex.quote(python)} - <<'END'
from anthropic import Anthropic

client = Anthropic(base_url="{facts.base_url}", api_key="{facts.api_key}")
message = client.messages.create(
    model="{facts.model}",
    max_tokens=64,
    messages=[{{"role": "user", "content": "{_QUESTION}"}}],
    extra_body={{"temperature": 0}},
)
print(message.content[-1].text)
END"""


def render_claude_code(facts: Facts) -> str:
    """Its environment. All three sizes are named, since it asks for each by itself, and `claude` is the command."""
    variables = {
        "ANTHROPIC_BASE_URL": facts.base_url,
        "ANTHROPIC_AUTH_TOKEN": facts.api_key,
        "ANTHROPIC_MODEL": facts.model,
    }
    variables |= {f"ANTHROPIC_DEFAULT_{size}_MODEL": facts.model for size in ("OPUS", "SONNET", "HAIKU")}
    return "\n".join(f'export {name}="{value}"' for name, value in variables.items()) + "\nclaude"
