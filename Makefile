# `make run` from nothing needs Python >= 3.11, git and make. EXTRA=cpu|gpu overrules the look for an NVIDIA GPU.
EXTRA ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo gpu || echo cpu)
BIN := .venv/bin
READY := .venv/ready-$(EXTRA)

.PHONY: help run test check fmt bench bench-edge bench-node chaos takeover rolling soak clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /make \1\t/p' Makefile | expand -t 18

run: $(READY) ## set up what is missing, then run the whole service here (Ctrl-C ends it)
	@exec $(BIN)/b3os dev --with-parent $(ARGS)

test: $(READY) ## the whole test suite, on a real Redis and the real small model
	@$(BIN)/b3os node models prepare
	$(BIN)/pytest

check: $(READY) ## lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

fmt: $(READY) ## format and repair what ruff can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY) ## what the edge adds, and what it weighs
	$(BIN)/python -m tests.bench

bench-node: $(READY) ## what the node costs per token, and how it serves a model, beside vLLM's own server
	$(BIN)/python -m tests.bench.node

bench-edge: $(READY) ## what the edge costs per request and event, beside the bare node and LiteLLM's proxy
	$(BIN)/python -m tests.bench.edge

chaos: $(READY) ## kill, freeze, stop and cut off everything at random for 2 minutes, and account for every request
	$(BIN)/python -m tests.e2e.money.storm $(ARGS)

takeover: $(READY) ## kill a node each second for a minute: what is lost, and how soon another takes over
	$(BIN)/python -m tests.chaos.takeover $(ARGS)

rolling: $(READY) ## restart each node and edge in turn, under load
	$(BIN)/python -m tests.chaos.rolling $(ARGS)

soak: $(READY) ## 20 minutes of mixed traffic at half of the capacity: what grows, and what is left
	$(BIN)/python -m tests.chaos.soak $(ARGS)

clean: ## remove the virtual environment, caches and the development state (.b3os, models included)
	rm -rf .venv .b3os .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find edge node shared tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Set up once, and again only when one of these changes.
$(READY): pyproject.toml constraints.txt shared/setup.sh
	@PYTHON="$(PYTHON)" sh shared/setup.sh $(EXTRA)
	@touch $@
