"""What a schema allows, in the few kinds that a grammar is made of.

A form never allows a value that its schema doesn't; it may allow fewer. Must not know JSON Schema or grammars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.schema.chars import ANY, Ranges
from node.schema.pattern import Node


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON value, or any object."""

    is_object: bool = False


@dataclass(frozen=True, slots=True)
class Literals:
    """Some values and no others, as JSON text."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A string of some characters, by its length in code points."""

    chars: Ranges = ANY
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Matching:
    """A string by its pattern."""

    pattern: Node


@dataclass(frozen=True, slots=True)
class Number:
    """A number, by a pattern of its digits."""

    pattern: Node


@dataclass(frozen=True, slots=True)
class Array:
    """Items by place, then items all alike; `rest` is None where there are no more."""

    first: tuple[Form, ...]
    rest: Form | None
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """One property."""

    name: str
    form: Form
    is_required: bool


@dataclass(frozen=True, slots=True)
class Object:
    """Properties in their order, then others.

    Attributes:
        extra: what the others are; None where there are none.
        extra_name: what they are called.
        most_extra: how many of them.
        is_filled: it has one property at least.
        is_closed: the schema itself forbids others.
    """

    fields: tuple[Field, ...]
    extra: Form | None = None
    extra_name: Text | Matching = field(default_factory=Text)
    most_extra: int | None = None
    is_filled: bool = False
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Either:
    """One of them."""

    options: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A form with a name, so that forms can hold themselves."""

    name: str


Form = Anything | Literals | Text | Matching | Number | Array | Object | Either | Ref


@dataclass(frozen=True, slots=True)
class Plan:
    """A form, and the named ones that it refers to."""

    root: Form
    named: Mapping[str, Form]

    def resolve(self, form: Form) -> Form:
        """What a name stands for."""
        while isinstance(form, Ref):
            form = self.named[form.name]
        return form
