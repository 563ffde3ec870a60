# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON := .venv/bin/python
SHELL := /bin/bash
export PLATFORMIO_SETTING_ENABLE_TELEMETRY := no
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup demo test test-all golden bench instructions replay soak attack results verify-results lint renode format clean

help:
	@echo "make demo      train the example on the emulated board; results in build/demo/"
	@echo "make test      all quick tests"
	@echo "make test-all  the slow ones too"
	@echo "make lint      ruff, mypy, clang-format, warnings as errors"
	@echo "make golden    the published networks against golden data (MICROTRAIN_DATA)"
	@echo "make bench     the published networks on the emulated board: docs/bench.md (MICROTRAIN_DATA)"
	@echo "make results   accuracy on real data, hours: docs/results.md (MICROTRAIN_DATA)"
	@echo "make verify-results ROW=n   run row n of docs/results.json again"
	@echo "make replay    what a replay buffer keeps of classes that are past: docs/replay.md (MICROTRAIN_DATA)"
	@echo "make soak      power cuts, a fuzzed line and a week of troubles: build/soak.json"
	@echo "make attack    hostile files and names, power cuts, extreme sums: build/attack.json"
	@echo "make renode    the Robot suites, on Renode where it is installed and on the board model"

setup:
	@scripts/setup.sh

demo: setup
	@$(PYTHON) tools/demo

test: setup
	@$(PYTHON) -m pytest -m "not slow" -n 2

test-all: setup
	@$(PYTHON) -m pytest -n 2

renode: setup
	@mkdir -p build && pio run -s -e disco_f746ng -e native -e camera -e nucleo_f446re > build/renode.log || { cat build/renode.log; exit 1; }
	@$(PYTHON) renode/run.py
	@$(PYTHON) renode/run.py --elf .pio/build/camera/firmware.elf --results build/renode/camera renode/camera.robot
	@$(PYTHON) renode/run.py --elf .pio/build/nucleo_f446re/firmware.elf --results build/renode/nucleo

golden: setup
	@$(PYTHON) tools/golden

bench: setup
	@$(PYTHON) tools/bench

results: setup
	@$(PYTHON) tools/results core
	@$(PYTHON) tools/results study
	@$(PYTHON) tools/results front
	@$(PYTHON) tools/results search
	@$(PYTHON) tools/results further
	@$(PYTHON) tools/results scaling
	@$(PYTHON) tools/results report

verify-results: setup
	@$(PYTHON) tools/results verify $(ROW)

replay: setup
	@$(PYTHON) tools/forgetting

soak: setup
	@$(PYTHON) tools/soak
	@$(PYTHON) tools/attack files

attack: setup
	@$(PYTHON) tools/attack

instructions: setup
	@$(PYTHON) tools/search/fit_instructions.py

lint: setup
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy tools examples/digits test renode
	@clang-format --dry-run --Werror $$(git ls-files 'firmware/*.[ch]' 'test/*.[ch]' 'tools/*.[ch]')
	@MICROTRAIN_MODEL=test/fixtures/null_model PLATFORMIO_BUILD_DIR=build/lint pio run -s -e disco_f746ng -e camera -e nucleo_f446re -e native

format: setup
	@$(PYTHON) -m ruff check --fix-only -q .
	@$(PYTHON) -m ruff format -q .
	@clang-format -i $$(git ls-files 'firmware/*.[ch]' 'test/*.[ch]' 'tools/*.[ch]')

clean:
	rm -rf build .pio firmware/generated
