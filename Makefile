# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON := .venv/bin/python
SHELL := /bin/bash
export PLATFORMIO_SETTING_ENABLE_TELEMETRY := no
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup demo test test-all coverage mutation golden bench instructions pieces sizes check-zoo tasks recipe claims replay cores soak attack fleet house results verify-results lint renode format clean

help:
	@echo "make demo      train the example on the emulated board; results in build/demo/"
	@echo "make test      all quick tests"
	@echo "make test-all  the slow ones too"
	@echo "make coverage  which lines and branches the quick tests run: build/coverage.json, build/coverage/"
	@echo "make mutation  bugs planted in the firmware, and which suite notices each: build/mutation.json"
	@echo "make lint      ruff, mypy, clang-format, warnings as errors"
	@echo "make golden    the published networks against golden data (MICROTRAIN_DATA)"
	@echo "make claims    the demo again, and its numbers into README and lab/pages/demo.md"
	@echo "make bench     the published networks on the emulated board: lab/pages/bench.md (MICROTRAIN_DATA)"
	@echo "make check-zoo public architectures through convert --check: build/zoo.json (torchvision)"
	@echo "make tasks     the networks of MLPerf Tiny, and a new speaker: build/tasks.json (MICROTRAIN_DATA)"
	@echo "make recipe    what the defaults learn, hours: build/recipe.json (MICROTRAIN_DATA)"
	@echo "make pieces    bounds of the library's pieces on each core: tools/convert/pieces.json"
	@echo "make sizes     what the firmware's own code takes of flash, for convert's estimate"
	@echo "make results   accuracy on real data, hours: lab/pages/results.md (MICROTRAIN_DATA)"
	@echo "make verify-results ROW=n   run row n of lab/pages/results.json again"
	@echo "make replay    what a replay buffer keeps of classes that are past: lab/pages/replay.md (MICROTRAIN_DATA)"
	@echo "make cores     the library on other cores, under QEMU: build/cores.json (MICROTRAIN_DATA: MCUNet too)"
	@echo "make soak      power cuts, a fuzzed line and a week of troubles: build/soak.json"
	@echo "make attack    hostile files and names, power cuts, extreme sums: build/attack.json"
	@echo "make house     lines, arrows, files per op, seconds of --help: build/house.json"
	@echo "make fleet     boards that learn together: the demo, leakage, troubles, CIFAR-10: build/fleet.json (MICROTRAIN_DATA)"
	@echo "make renode    the Robot suites, on Renode where it is installed and on the board model"

# Two test processes fill two cores: threads of a BLAS that wait for work would only spin beside them.
test test-all coverage: export OMP_NUM_THREADS := 1

setup:
	@scripts/setup.sh

demo: setup
	@$(PYTHON) tools/demo

test: setup
	@$(PYTHON) -m pytest -m "not slow" -n 2

test-all: setup
	@$(PYTHON) -m pytest -n 2

coverage: setup
	@$(PYTHON) lab/coverage

mutation: setup
	@$(PYTHON) lab/mutation

renode: setup
	@mkdir -p build && pio run -s -e disco_f746ng -e native -e camera > build/renode.log || { cat build/renode.log; exit 1; }
	@$(PYTHON) renode/run.py
	@$(PYTHON) renode/run.py --elf .pio/build/camera/firmware.elf --results build/renode/camera renode/camera.robot
	@$(PYTHON) renode/run.py --example qspi --results build/renode/qspi renode/external.robot renode/training.robot
	@$(PYTHON) renode/run.py --example nucleo_f446re --results build/renode/nucleo

golden: setup
	@$(PYTHON) lab/golden

bench: setup
	@$(PYTHON) lab/bench

results: setup
	@$(PYTHON) lab/results core
	@$(PYTHON) lab/results study
	@$(PYTHON) lab/results front
	@$(PYTHON) lab/results search
	@$(PYTHON) lab/results further
	@$(PYTHON) lab/results scaling
	@$(PYTHON) lab/results report

verify-results: setup
	@$(PYTHON) lab/results verify $(ROW)

replay: setup
	@$(PYTHON) lab/forgetting

cores: setup
	@$(PYTHON) lab/cores

soak: setup
	@$(PYTHON) lab/soak
	@$(PYTHON) lab/attack files

attack: setup
	@$(PYTHON) lab/attack

claims: setup
	@$(PYTHON) lab/claims --measure

fleet: setup
	@$(PYTHON) -c 'import flwr' 2>/dev/null || $(PYTHON) -m pip install --quiet --disable-pip-version-check -e '.[dev,fleet]'
	@$(PYTHON) lab/fleet

house: setup
	@$(PYTHON) lab/house
	@[ -f build/coverage.json ] || { $(PYTHON) lab/coverage; $(PYTHON) lab/house; }

recipe: setup
	@$(PYTHON) lab/recipe

check-zoo: setup
	@$(PYTHON) lab/zoo

tasks: setup
	@$(PYTHON) lab/tasks

pieces: setup
	@$(PYTHON) lab/pieces

sizes: setup
	@$(PYTHON) lab/sizes

instructions: setup
	@$(PYTHON) lab/instructions

lint: setup
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy microtrain lab examples/digits test renode
	@clang-format --dry-run --Werror $$(git ls-files 'firmware/*.[ch]' 'examples/*.[ch]' 'test/*.[ch]' 'tools/*.[ch]' ':!tools/convert/export/packages/examples' 'lab/*.[ch]')
	@MICROTRAIN_MODEL=test/fixtures/null_model PLATFORMIO_BUILD_DIR=build/lint pio run -s -e disco_f746ng -e camera -e nucleo_f446re -e native

format: setup
	@$(PYTHON) -m ruff check --fix-only -q .
	@$(PYTHON) -m ruff format -q .
	@clang-format -i $$(git ls-files 'firmware/*.[ch]' 'examples/*.[ch]' 'test/*.[ch]' 'tools/*.[ch]' ':!tools/convert/export/packages/examples' 'lab/*.[ch]')

clean:
	rm -rf build .pio firmware/generated
