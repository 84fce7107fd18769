"""A request to the chat messages that a template renders.

Decides the order, the joining and the safety of text. Must not know tokenizers, HTTP, or how pictures are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import orjson

from node.engine.port import Prompt
from node.translate.turns import BLOCK_SEPARATOR, Turns
from node.wire.request import (
    AssistantMessage,
    ImageBlock,
    Message,
    MessagesRequest,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ThinkingDisabled,
    Tool,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from node.wire.rules import list_shown_tools

ZERO_WIDTH_SPACE = "\u200b"
IMAGE_FOLLOWS = "(image follows)"
"""The text of a result that is images alone: they follow on the user's side, after all results."""
Images = Mapping[str, Any]
"""Decoded pictures by the dotted path of their block."""


class PromptBuilder:
    """Builds prompts for one model, whose special tokens must not be spelled by a caller's text."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def build_prompt(
        self, request: MessagesRequest, images: Images | None = None, *, cache_salt: str | None = None
    ) -> Prompt:
        """Messages in their order; a trailing assistant turn is continued, its trailing space kept."""
        turns = Turns(() if not request.system else [self._text(request.system)])
        for index, message in enumerate(request.messages):
            self._add(turns, message, f"messages.{index}", images or {})
        messages = turns.finish()
        return Prompt(
            messages=messages,
            tools=[self._tool(tool) for tool in list_shown_tools(request)],
            enable_thinking=request.thinking is not None and not isinstance(request.thinking, ThinkingDisabled),
            continues_last=request.messages[-1].role == "assistant" and messages[-1]["role"] == "assistant",
            cache_salt=cache_salt,
        )

    def _add(self, turns: Turns, message: Message, path: str, images: Images) -> None:
        match message:
            case AssistantMessage():
                self._add_assistant(turns, message)
            case SystemMessage():
                turns.remind(f"<system-reminder>\n{self._text(message.content)}\n</system-reminder>")
            case UserMessage(content=str(text)):
                turns.say(self.neutralise(text))
            case UserMessage():
                for place, block in enumerate(message.content):
                    self._add_block(turns, block, f"{path}.content.{place}", images)
            case _:
                assert_never(message)

    def _add_block(self, turns: Turns, block: object, path: str, images: Images) -> None:
        if isinstance(block, TextBlock):
            turns.say(self.neutralise(block.text))
        elif isinstance(block, ImageBlock):
            turns.show(images[path])
        elif isinstance(block, ToolResultBlock):
            self._add_result(turns, block, path, images)

    def _add_result(self, turns: Turns, block: ToolResultBlock, path: str, images: Images) -> None:
        texts, pictures = [], []
        blocks = block.content if isinstance(block.content, list) else ()
        if isinstance(block.content, str):
            texts = [block.content]
        for index, inner in enumerate(blocks):
            match inner:
                case TextBlock():
                    texts.append(inner.text)
                case ImageBlock():
                    pictures.append(images[f"{path}.content.{index}"])
                case ToolReferenceBlock():
                    texts.append(f"The tool {inner.tool_name} is loaded.")
        text = BLOCK_SEPARATOR.join(texts) or (IMAGE_FOLLOWS if pictures else "")
        if block.is_error:
            text = f"Error: {text}"
        turns.report(self.neutralise(block.tool_use_id), self.neutralise(text), pictures)

    def _add_assistant(self, turns: Turns, message: AssistantMessage) -> None:
        if isinstance(message.content, str):
            turns.answer(text=self.neutralise(message.content))
            return
        for block in message.content:
            match block:
                case TextBlock():
                    turns.answer(text=self.neutralise(block.text))
                case ThinkingBlock():
                    turns.answer(thinking=self.neutralise(block.thinking))
                case ToolUseBlock():
                    turns.answer(call=self._call(block))
                case RedactedThinkingBlock():
                    pass

    def _call(self, block: ToolUseBlock) -> dict[str, Any]:
        arguments = self.neutralise(orjson.dumps(block.input).decode())
        function = {"name": self.neutralise(block.name), "arguments": arguments}
        return {"id": self.neutralise(block.id), "type": "function", "function": function}

    def _tool(self, tool: Tool) -> dict[str, Any]:
        """OpenAI's shape, as templates take it."""
        function: dict[str, Any] = {"name": tool.name}
        if tool.description is not None:
            function["description"] = tool.description
        function["parameters"] = tool.input_schema
        whole = {"type": "function", "function": function}
        text = orjson.dumps(whole).decode()
        safe = self.neutralise(text)
        return whole if safe == text else dict(orjson.loads(safe))

    def _text(self, content: str | list[TextBlock]) -> str:
        joined = content if isinstance(content, str) else BLOCK_SEPARATOR.join(block.text for block in content)
        return self.neutralise(joined)

    def neutralise(self, text: str) -> str:
        """Break every special-token string with a zero-width space, so that text can't forge a turn."""
        if self._special is None:
            return text
        return self._special.sub(lambda found: found[0][0] + ZERO_WIDTH_SPACE + found[0][1:], text)
