"""The rules for Prometheus and the dashboard for Grafana against the metrics that there are, and their manual."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.watched import MESSAGES

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "b3os.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "docs" / "prometheus" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
METRICS: dict[str, str] = {}  # by name, the cells of labels and meaning
for name, kind, rest in re.findall(
    r"^\| `(\w+)` \| (\w+) \|(.*)$", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE
):
    METRICS |= {f"{name}{end}": rest for end in (("_bucket", "_count", "_sum") if kind == "histogram" else ("",))}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = {f"alert {rule['alert']}": rule["expr"] for rule in RULES} | {
    f"panel {panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]
}
_FROM_PROMETHEUS = {"job", "instance", "le"}
_SELECTOR = re.compile(r"\b(?P<name>(?:b3os|process)_\w+)(?:\{(?P<matchers>[^}]*)\})?")
_MATCHER = re.compile(r'(?P<label>\w+)(?P<sign>=~|!=|!~|=)"(?P<value>[^"]*)"')


def selectors(expression: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Names of metrics, with label, sign and value of their matchers."""
    for found in _SELECTOR.finditer(re.sub(r"\bby \([^)]*\)", "", expression)):
        yield found["name"], _MATCHER.findall(found["matchers"] or "")


def meaning_of(label: str) -> str:
    """All rows that have the label: the values of one are told in the first of them."""
    return "\n".join(row for row in METRICS.values() if f"`{label}`" in row.partition(" | ")[0])


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_an_expression_asks_for_metrics_labels_and_values_that_there_are(where: str) -> None:
    found = list(selectors(EXPRESSIONS[where]))
    if where != "alert ProcessDown":  # Prometheus' own `up`
        assert found
    labels_known: set[str] = set()
    for name, matchers in found:
        assert name in METRICS, name
        labels, _, _ = METRICS[name].partition(" | ")
        known = set(re.findall(r"`(\w+)`", labels))
        labels_known |= known
        for label, sign, value in matchers:
            assert label in known | _FROM_PROMETHEUS, (name, label)
            if label == "message":
                assert [text for text in MESSAGES if (re.fullmatch(value, text) if "~" in sign else text == value)]
                assert all(
                    any(re.fullmatch(part, text) for text in MESSAGES) for part in value.split("|") if "~" in sign
                )
            elif label in known and "~" not in sign:
                assert f"`{value}`" in meaning_of(label), (name, value)
    for group in re.findall(r"\bby \(([^)]*)\)", EXPRESSIONS[where]):
        assert {label.strip() for label in group.split(",")} <= labels_known | _FROM_PROMETHEUS, group


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_an_expression_is_balanced_and_counters_are_read_as_rates(where: str) -> None:
    expression = EXPRESSIONS[where]
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    for name, _ in selectors(expression):
        is_counter = name.endswith(("_total", "_bucket"))
        asked = re.findall(rf"\b(rate|increase)\({name}\b", expression)
        assert bool(asked) is is_counter, name


def test_every_alarm_has_its_section_and_every_section_its_alarm() -> None:
    manual = (ROOT / "docs" / "operations.md").read_text().partition("\n## Alarms\n")[2].partition("\n## ")[0]
    sections = re.findall(r"^### (\w+)\n\n(.+?)(?=\n\n|\Z)", manual, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == [rule["alert"] for rule in RULES]
    assert all(len(text.split()) > 15 for _, text in sections)


def test_alarms_say_how_much_they_hurry() -> None:
    assert {rule["labels"]["severity"] for rule in RULES} == {"page", "warn"}
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_each_metric_of_ours_is_on_the_dashboard_or_needs_no_picture() -> None:
    shown = {name for where, text in EXPRESSIONS.items() if where.startswith("panel") for name, _ in selectors(text)}
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in METRICS if name.startswith("b3os_")}
    seen = {re.sub("_(bucket|count|sum)$", "", name) for name in shown}
    assert families - seen == {"b3os_build_info", "b3os_engine_requests", "b3os_node_refusals_logged_total"}


def test_panels_stand_apart_and_take_the_chosen_source() -> None:
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= cells
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${source}"}
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
