# opd: `make run` shows what this machine is doing; `make test` proves that it
# works. Both set themselves up in .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PYTHON ?= python3
# Python remembers the compiler it was built with, which need not be here.
export CC
BIN := $(VENV)/bin
PREFIX ?= /usr/local
NATIVE := build/native
JOBS := $(shell nproc)
# Most tests wait for real time to pass.
TESTERS := $(shell expr $(JOBS) + 2)
# Without it (PYTHONDONTWRITEBYTECODE) each start compiles every module: 0.3 s.
COMPILE = $(BIN)/python -m compileall -q daemon native/opd_native plugins

comma := ,
NATIVE_SOURCES := $(shell find native -name '*.[ch]' -o -name CMakeLists.txt)
C_FILES = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h' | grep -v cdef)

.PHONY: help run test ctest pytest bench lint fix sanitize fuzz wheel install uninstall clean

help:  ## show these targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/.installed  ## show live what the machine does, until Ctrl-C (SECONDS=20: end by itself)
	@$(COMPILE)
	@scripts/run "$(SECONDS)"

test: $(VENV)/.dev lint sanitize-address,undefined pytest  ## lint, C tests under ASan+UBSan, Python tests

ctest: $(VENV)/.dev  ## the C tests as they run fast
	@$(BIN)/cmake -S native -B $(NATIVE) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja >/dev/null
	@$(BIN)/cmake --build $(NATIVE) -j $(JOBS)
	@$(BIN)/ctest --test-dir $(NATIVE) -j $(JOBS) --output-on-failure

pytest: $(VENV)/.dev
	@$(BIN)/python -m pytest -q $(or $(ARGS),-p no:cacheprovider -n $(TESTERS) --no-loadscope-reorder)

bench: $(VENV)/.bench  ## measure opd beside its peers on this machine: docs/benchmarks.md
	@$(COMPILE)
	@$(BIN)/python tests/bench $(ARGS)

lint: $(VENV)/.dev  ## ruff, mypy, import rules, clang-format
	@mkdir -p build
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports >build/imports.txt 2>&1 || { cat build/imports.txt; exit 1; }
	@$(BIN)/clang-format --dry-run -Werror $(C_FILES)

fix: $(VENV)/.dev  ## let the formatters and linters mend what they can
	@$(BIN)/ruff check -q --fix . || true
	@$(BIN)/ruff format -q .
	@$(BIN)/clang-format -i $(C_FILES)

sanitize: sanitize-address,undefined sanitize-thread  ## the C tests under ASan+UBSan and TSan

sanitize-%: $(VENV)/.dev
	@dir=build/native-$(firstword $(subst $(comma), ,$*)); \
	  $(BIN)/cmake -S native -B $$dir -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DOPD_SANITIZE=$* >/dev/null && \
	  $(BIN)/cmake --build $$dir -j $(JOBS) && \
	  $(BIN)/ctest --test-dir $$dir -j $(JOBS) --output-on-failure

fuzz: $(VENV)/.dev  ## libFuzzer on every parser (needs clang; SECONDS=60 each)
	@CC=clang $(BIN)/cmake -S native -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DCMAKE_C_COMPILER=$(shell command -v clang clang-14 | head -n 1) \
	  -DOPD_SANITIZE=address,undefined -DOPD_FUZZ=ON >/dev/null
	@$(BIN)/cmake --build build/fuzz -j $(JOBS)
	@for target in build/fuzz/tests/fuzz_*; do \
	  case $$target in *_replay) continue;; esac; \
	  name=$${target##*/fuzz_}; mkdir -p build/corpus/$$name; \
	  echo "== $$name"; \
	  $$target -max_total_time=$(or $(SECONDS),60) -print_final_stats=1 -verbosity=0 \
	    build/corpus/$$name tests/native/fuzz/corpus/$$name || exit 1; \
	done

wheel: $(VENV)/.dev  ## build the wheel into dist/
	@$(BIN)/pip wheel -q --no-deps --no-build-isolation -w dist .
	@ls dist

install: $(VENV)/.installed  ## install below PREFIX=/usr/local (DESTDIR= for packages); docs/service.md
	@BIN=$(BIN) PYTHON=$(PYTHON) PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install

uninstall:  ## remove what install put there; settings and history stay
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install uninstall

clean:  ## remove everything that was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.bench: $(VENV)/.dev
	@$(BIN)/pip install -q --group bench
	@touch $@

$(VENV)/bin/python:
	@scripts/setup-venv $(PYTHON) $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml $(NATIVE_SOURCES)
	@echo "setting up $(VENV) …" >&2
	@$(BIN)/pip install -q --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(BIN)/pip install -q --group dev
	@scripts/setup-tests
	@touch $@
