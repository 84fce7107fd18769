"""Whether what a form allows has an end: a list in a list in a list has none, if no list may be empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from node.schema.form import Array, Either, Form, Literals, Object, Plan, Ref
from node.schema.refusal import invalid


def keep_finite(plan: Plan, paths: Mapping[str, str]) -> Plan:
    """The plan with no more names than it uses.

    Raises:
        ApiError: at a definition that needs itself.
    """
    used = list(dict.fromkeys(_refs(plan.root)))
    known = set(used)
    holders: dict[str, list[str]] = {}
    for name in used:  # grows as it goes
        for other in dict.fromkeys(_refs(plan.named[name])):
            holders.setdefault(other, []).append(name)
            if other not in known:
                known.add(other)
                used.append(other)
    finite: set[str] = set()
    open_names = list(used)
    while open_names:
        name = open_names.pop()
        if name not in finite and _ends(plan.named[name], finite):
            finite.add(name)
            open_names += holders.get(name, ())
    for name in used:
        if name not in finite:
            raise invalid(paths[name], "every value of this holds another of them, without end")
    return Plan(plan.root, {name: plan.named[name] for name in used})


def _refs(form: Form) -> Iterator[str]:
    match form:
        case Ref(name):
            yield name
        case Either(options):
            for option in options:
                yield from _refs(option)
        case Array(first, rest, _, _):
            for item in (*first, *(() if rest is None else (rest,))):
                yield from _refs(item)
        case Object(fields, extra):
            for inner in (*(field.form for field in fields), *(() if extra is None else (extra,))):
                yield from _refs(inner)
        case _:
            return


def _ends(form: Form, finite: set[str]) -> bool:
    match form:
        case Ref(name):
            return name in finite
        case Either(options):
            return any(_ends(option, finite) for option in options)
        case Array(first, rest, least, _):
            return all(_ends(item, finite) for item in first[:least]) and (
                least <= len(first) or (rest is not None and _ends(rest, finite))
            )
        case Object(fields, extra, is_filled=is_filled):
            return all(_ends(field.form, finite) for field in fields if field.is_required) and (
                not is_filled
                or any(_ends(field.form, finite) for field in fields)
                or (extra is not None and _ends(extra, finite))
            )
        case Literals(texts):
            return bool(texts)
        case _:
            return True
