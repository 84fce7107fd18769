"""Which fields of a request were accepted and ignored, for the header `x-b3os-ignored`.

A caller is told by name: nothing is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from node.wire.request import Content, MessagesRequest, OutputConfig

_TOP_LEVEL = ("metadata", "service_tier", "cache_control", "context_management")
_OF_BLOCKS = ("cache_control", "citations")


def list_ignored(request: MessagesRequest) -> list[str]:
    """Dotted names without list indexes, each once, sorted; null counts as unset."""
    return sorted(set(_walk(request)))


def _walk(request: MessagesRequest) -> Iterator[str]:
    yield from (name for name in _TOP_LEVEL if getattr(request, name) is not None)
    yield from _effort(request.output_config, "output_config")
    yield from _of_blocks(request.system, "system")
    for message in request.messages:
        yield from _effort(message.output_config, "messages.output_config")
        yield from _of_blocks(message.content, "messages.content")


def _effort(config: OutputConfig | None, path: str) -> Iterator[str]:
    if config is not None and config.effort is not None:
        yield f"{path}.effort"


def _of_blocks(content: Content | None, path: str) -> Iterator[str]:
    if content is None or isinstance(content, str):
        return
    for block in content:
        yield from (f"{path}.{name}" for name in _OF_BLOCKS if getattr(block, name) is not None)
