"""What models write, split into pieces as it comes: thinking, text and calls."""

from node.engine.dialect.names import dialect_of
from node.engine.dialect.spec import BrokenCall, Dialect, ToolFormat
from node.engine.dialect.splitter import Splitter

__all__ = ["BrokenCall", "Dialect", "Splitter", "ToolFormat", "dialect_of"]
