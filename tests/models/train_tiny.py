"""Make the tiny test model: `python -m tests.models.train_tiny --out DIR`.

The same steps, seed and threads give the same data and schedule; the last bits of the weights depend on the machine.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from tests.models.tiny.export import export, load_parameters
from tests.models.tiny.network import Shape
from tests.models.tiny.tokenizer import build_tokenizer
from tests.models.tiny.training import Plan, train


def main() -> None:
    """Train and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--steps", type=int, default=1400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="one is faster where others use the machine")
    parser.add_argument("--start", type=Path, help="a folder to go on from; the rates are then a third")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    tokenizer = build_tokenizer()
    shape = Shape(tokenizer.get_vocab_size())
    start, plan = None, Plan(arguments.steps, arguments.seed)
    if arguments.start is not None:
        start = load_parameters(arguments.start)
        plan = replace(plan, short_steps=0, muon_rate=plan.muon_rate / 3, adam_rate=plan.adam_rate / 3)
    parameters = train(tokenizer, shape, plan, lambda line: print(line, flush=True), start)
    export(arguments.out, tokenizer, shape, parameters)


if __name__ == "__main__":
    main()
