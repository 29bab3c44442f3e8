# Tandem: `make chat` talks, `make test` tests, `make check` looks at the sources.
# Each one sets up .venv by itself, the first time and whenever the pinned requirements change.
# Written for GNU make 3.81, which macOS has.

VENV = .venv
BIN = $(VENV)/bin
SET_UP = VENV="$(VENV)" PYTHON="$(PYTHON)" GPU="$(GPU)" sh scripts/set_up.sh
PIN = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--no-header --quiet --upgrade --group build pyproject.toml

# What a person may set: make chat MODEL=qwen2.5-coder-1.5b, make test ARGS="tests/models -x", make chat GPU=0.
MODEL =
ARGS =
GPU =
PYTHON =

.PHONY: help chat test test-gpu bench-gpu check lint types rooms lengths words format pins set-up set-up-dev

help:
	@echo "make chat    set up once, then open the chat                         (MODEL=name, GPU=0)"
	@echo "make test    run the whole test suite                              (ARGS=\"tests/models -x\")"
	@echo "make test-gpu    the tests that need an NVIDIA GPU; writes docs/gpu-tests-DATE.md"
	@echo "make bench-gpu   how fast the GPU's kernels and models are; writes docs/gpu-bench-DATE.md"
	@echo "make check   ruff, pyright, the rooms' import rules, module lengths, words"
	@echo "make format  let ruff lay out the sources"
	@echo "make pins    resolve the pinned requirements anew"

chat: set-up
	@$(BIN)/tandem chat $(MODEL)

test: set-up-dev
	@$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

test-gpu: set-up-dev
	@$(BIN)/python .ci/gpu_report.py tests

bench-gpu: set-up-dev
	@$(BIN)/python .ci/gpu_report.py bench

check: lint types rooms lengths words

lint: set-up-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Some files are not laid out as ruff does it: make format"; exit 1; }

types: set-up-dev
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

rooms: set-up-dev
	@$(BIN)/lint-imports --no-logo

lengths: set-up-dev
	@$(BIN)/python .ci/check_module_lengths.py

words: set-up-dev
	@$(BIN)/python .ci/check_words.py

format: set-up-dev
	@$(BIN)/ruff format .

set-up:
	@$(SET_UP)

set-up-dev:
	@$(SET_UP) dev

pins: set-up-dev
	@$(BIN)/python -m pip install --quiet uv
	$(PIN) --output-file requirements.txt
	$(PIN) --constraint requirements.txt --extra dev --output-file requirements-dev.txt
	$(PIN) --constraint requirements.txt --extra gpu --output-file requirements-gpu.txt
	$(PIN) --constraint requirements.txt --extra gpu-cu12 --output-file requirements-gpu-cu12.txt
