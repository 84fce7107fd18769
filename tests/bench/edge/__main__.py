"""`make bench-edge`: print all tables. `python -m tests.bench.edge small` prints some, and so the other parts.

Decides how much is measured, and what it is held against.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence

import uvloop

from tests.bench.edge.admission import STEPS, measure_admission, median_p99_ms, redis_cost
from tests.bench.edge.client import Way
from tests.bench.edge.litellm import install, running_litellm
from tests.bench.edge.processes import Stub, running_edge, running_stub
from tests.bench.edge.small import CONNECTIONS, Latency, Saturation, measure_latency, saturate
from tests.bench.edge.streams import Flow, Load, compare_flows, weigh
from tests.bench.edge.tables import describe_load, describe_machine, describe_versions, print_table

PARTS = ("small", "streams", "admission", "litellm")
RATE_PER_S, LATENCY_S = 100, 30
ROUNDS, ROUND_S = 5, 3
BURST = Load(streams=16, events=20_000, every_ms=0)
PACED = (Load(100, 500, 20), Load(150, 1000, 10), Load(300, 1000, 10))
OPEN = Load(streams=500, events=10, every_ms=500)
REQUESTS, MODELS_S = 1000, (0.02, 0.001)
THEIR_RATE_PER_S = 20
"""LiteLLM must not be near what it can serve, else it is its queue that is measured."""
THEIR_PACED = Load(8, 500, 20)


def main(parts: Sequence[str]) -> None:
    """Measure and print."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that what was started is stopped
    print(f"On {describe_machine()}, {describe_versions()}; {describe_load()} at the begin.")
    with running_stub() as stub:
        if "streams" in parts:
            show_weight(stub)
        with running_edge(stub) as edge:
            if "small" in parts:
                show_small([stub.direct, edge])
            if "streams" in parts:
                show_streams([stub.direct, edge])
            if "litellm" in parts:
                show_litellm(stub, edge)
    if "admission" in parts:
        show_admission()
    print(f"\n{describe_load()} at the end.")


def show_small(ways: Sequence[Way]) -> None:
    """What the edge adds, and how much one of it serves."""
    latency = uvloop.run(measure_latency(ways, RATE_PER_S, LATENCY_S))
    show_latency(f"Small whole answers, {RATE_PER_S}/s on each way, {describe_load()} (1.5 and 8 ms added)", latency)
    full = uvloop.run(saturate(ways, ROUNDS, ROUND_S))
    show_saturation(f"{CONNECTIONS} connections that never pause, {describe_load()} (1000/s through the edge)", full)


def show_latency(title: str, found: Mapping[str, Latency]) -> None:
    """Medians and p99 of each way, and how far they stand above the first way's."""
    direct, *_ = found.values()
    rows = []
    for name, latency in found.items():
        values = [latency.quantile_ms(percent) for percent in (50, 99)]
        added = [value - direct.quantile_ms(percent) for value, percent in zip(values, (50, 99), strict=True)]
        cells = [f"{value:.2f} ms" for value in (*values, *added)]
        late_ms = max(latency.late_ms)
        rows.append((name, str(len(latency.values_ms)), *cells, f"{latency.cpu_us:.0f} µs", f"{late_ms:.0f} ms"))
    head = ("way", "requests", "median", "p99", "added, median", "added, p99", "CPU per request", "latest sending")
    print_table(title, head, rows)


def show_saturation(title: str, found: Mapping[str, Saturation]) -> None:
    """Requests per second, and what each costs the way's own process."""
    rows = [
        (name, f"{full.per_s:.0f}", f"{min(full.rates):.0f}", f"{full.cpu_us:.0f} µs", f"{full.cores:.2f}")
        for name, full in found.items()
    ]
    print_table(title, ("way", "requests/s, median", "least", "CPU per request", "cores used"), rows)


def show_streams(ways: Sequence[Way]) -> None:
    """Each load on both ways in turn."""
    rows = []
    for load in (BURST, *PACED):
        flows = uvloop.run(compare_flows(ways, load))
        rows += [_flow_row(load, name, flow) for name, flow in flows.items()]
    print_table(f"Events of streams, {describe_load()} (15,000/s through the edge)", _FLOW_HEAD, rows)


_FLOW_HEAD = ("streams", "pace", "way", "events", "events/s", "age", "age, p99", "CPU per event", "cores", "altered")


def _flow_row(load: Load, name: str, flow: Flow) -> tuple[str, ...]:
    ages = (flow.quantile_ms(50), flow.quantile_ms(99))
    return (
        str(load.streams),
        load.pace,
        name,
        str(flow.events),
        f"{flow.per_s:.0f}",
        *("-" if age is None else f"{age:.2f} ms" for age in ages),
        f"{flow.cpu_us:.1f} µs",
        f"{flow.cores:.2f}",
        str(flow.different),
    )


def show_weight(stub: Stub) -> None:
    """Of a fresh edge."""
    with running_edge(stub) as edge:
        weight = uvloop.run(weigh(edge, OPEN))
    cells = (f"{value:.1f} MiB" for value in (weight.before_mib, weight.open_mib, weight.after_mib))
    head = ("open streams", "resident before", "most while open", "after")
    print_table("Memory of a fresh edge (120 MiB)", head, [(str(weight.streams), *cells)])


def show_admission() -> None:
    """What the node's limits add, and what they cost Redis."""
    rows = []
    for model_s in MODELS_S:
        steps = uvloop.run(measure_admission(RATE_PER_S, REQUESTS, model_s))
        sums = {step: steps.values_ms[step] for step in STEPS}
        sums["first token"] = steps.sums_ms(*STEPS[:2])
        sums["whole answer"] = steps.sums_ms(*STEPS)
        cells = ("{:.2f} / {:.2f} ms".format(*median_p99_ms(values)) for values in sums.values())
        rows.append((f"{model_s * 1000:.0f} ms", *cells, f"{steps.cpu_us:.0f} µs", str(steps.refused)))
    head = (
        "model after the first token",
        *STEPS,
        "first token",
        "whole answer",
        "node's CPU",
        "refused",
    )
    print_table(f"A node's limits, {RATE_PER_S}/s, median / p99, {describe_load()}", head, rows)
    print(f"\nRedis, {describe_load()}:\n\n{redis_cost()}")


def show_litellm(stub: Stub, edge: Way) -> None:
    """The same client, node and run."""
    version = install()
    with running_litellm(stub) as theirs:
        ways = (stub.direct, edge, theirs)
        latency = uvloop.run(measure_latency(ways, THEIR_RATE_PER_S, LATENCY_S))
        where = f"Beside LiteLLM {version}"
        show_latency(f"{where}: {THEIR_RATE_PER_S}/s on each way, {describe_load()}", latency)
        full = uvloop.run(saturate(ways, ROUNDS, ROUND_S))
        show_saturation(f"{where}: {CONNECTIONS} connections that never pause, {describe_load()}", full)
        flows = uvloop.run(compare_flows(ways, THEIR_PACED))
        rows = [_flow_row(THEIR_PACED, name, flow) for name, flow in flows.items()]
        print_table(f"{where}: streams, {describe_load()}", _FLOW_HEAD, rows)
    direct, ours, others = (latency[way.name].quantile_ms(50) for way in ways)
    times_latency = (others - direct) / (ours - direct)
    times_cpu = full[theirs.name].cpu_us / full[edge.name].cpu_us
    print(f"\nOf LiteLLM's to ours: added median {times_latency:.1f}, CPU per request {times_cpu:.1f} (5 for each)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.edge")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    main(parser.parse_args().parts or PARTS)
