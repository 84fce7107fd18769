"""Which fields of a request were accepted and ignored, for the header `x-b3os-ignored`.

A caller is told by name: nothing is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from node.wire.request import MessageConfig, MessagesRequest, OutputConfig, RedactedThinkingBlock

_TOP_LEVEL = ("metadata", "service_tier", "cache_control", "context_management")
_OF_BLOCKS = ("cache_control", "citations", "signature")
_OF_TOOLS = ("cache_control", "eager_input_streaming")


def list_ignored(request: MessagesRequest) -> list[str]:
    """Dotted names without list indexes, each once, sorted; null counts as unset."""
    return sorted(set(_walk(request)))


def _walk(request: MessagesRequest) -> Iterator[str]:
    yield from _set_of(request, _TOP_LEVEL, "")
    yield from _effort(request.output_config, "output_config")
    yield from _set_of(request.thinking, ("display",), "thinking.")
    for tool in request.tools or ():
        yield from _set_of(tool, _OF_TOOLS, "tools.")
    yield from _of_blocks(request.system, "system")
    for message in request.messages:
        yield from _effort(message.output_config, "messages.output_config")
        yield from _of_blocks(message.content, "messages.content")


def _effort(config: OutputConfig | MessageConfig | None, path: str) -> Iterator[str]:
    yield from _set_of(config, ("effort",), f"{path}.")


def _of_blocks(content: Any, path: str) -> Iterator[str]:
    if not isinstance(content, list):
        return
    for block in content:
        if isinstance(block, RedactedThinkingBlock):
            yield f"{path}.redacted_thinking"
        yield from _set_of(block, _OF_BLOCKS, f"{path}.")
        yield from _of_blocks(vars(block).get("content"), f"{path}.content")


def _set_of(value: Any, names: tuple[str, ...], prefix: str) -> Iterator[str]:
    """Those of the names that a value has, and has set. To ask pydantic for a field that isn't there takes 1 µs."""
    fields = {} if value is None else vars(value)
    yield from (prefix + name for name in names if fields.get(name) is not None)
