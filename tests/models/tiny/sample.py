"""One thing to learn: a conversation and its only right answer.

Decides what a sample holds and how it becomes text through the chat template. Must not know tokens or tasks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = Path(__file__).parent / "chat_template.jinja"
IMAGE_TOKENS = 4
IMAGE = "<fake_token_around_image><global-img>" + "<image>" * IMAGE_TOKENS + "<fake_token_around_image>"
"""What the processor of Idefics3 makes of the template's `<image>`."""

Message = dict[str, Any]


@dataclass(slots=True)
class Sample:
    """A conversation, the answer, and how it thinks.

    Args:
        thought: None without thinking. endless: the thought never ends by itself, so that it is always cut.
        prefill: the start of the answer, given by the caller.
        colours: of the pictures, in their order.
    """

    skill: str
    messages: list[Message]
    answer: str
    thought: str | None = None
    endless: bool = False
    prefill: str = ""
    tools: list[Message] = field(default_factory=list)
    colours: list[str] = field(default_factory=list)

    def prompt(self) -> str:
        """The text that the engine would see, pictures expanded."""
        text = render(self.messages, self.tools, thinking=self.thought is not None)
        return text.replace("<image>", IMAGE) + self.prefill


def render(messages: list[Message], tools: list[Message], *, thinking: bool) -> str:
    """The chat template as transformers runs it, for a new answer."""
    text: str = _template().render(
        messages=messages, tools=tools or None, add_generation_prompt=True, enable_thinking=thinking
    )
    return text


@cache
def _template() -> Any:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)  # text for a model, not HTML
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(TEMPLATE.read_text())
