# Set-up, demo, tests.  `make demo` and `make test` are all that a fresh Debian machine needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PACKAGES := $(patsubst %/pyproject.toml,%,$(wildcard packages/*/pyproject.toml))
# More than cores: the tests of real processes mostly wait.
XDIST  ?= 4
# Hundreds of processes are started by the tests; where PYTHONDONTWRITEBYTECODE is set each would compile anew.
COMPILE := $(BIN)/python -m compileall -q src $(PACKAGES:=/src) tests/support

.DEFAULT_GOAL := help
.PHONY: site dist integrations backends help fresh slurm setup demo test test-core test-long test-all lint bench schemas figures stale docs requirements clean

help:            ## show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /\t/' | expand -t 16

setup: $(STAMP)  ## create .venv with everything pinned

$(STAMP): requirements/dev.txt pyproject.toml $(PACKAGES:=/pyproject.toml) $(wildcard src/dovetail/native/*.[ch]) hatch_build.py
	@$(PYTHON) tools/needs.py compiler
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . $(addprefix --editable ,$(PACKAGES))
	@$(BIN)/python tools/needs.py
	@touch $@

fresh:           ## both on a Debian made from nothing (as root, with debootstrap; 15 minutes on 2 cores)
	tools/fresh.sh

slurm:           ## what the tests on a real Slurm cluster need (Debian, as root); without it they are skipped
	apt-get update --quiet
	apt-get install --yes --no-install-recommends slurm-wlm slurm-wlm-basic-plugins munge mpich \
		slurmdbd mariadb-server-core mariadb-client-core

demo: $(STAMP)   ## learn six programs on two devices, then beat the best static placement (FULL=1: every one)
	@$(BIN)/python examples/demo/demo.py $(if $(FULL),--full)

test: $(STAMP)   ## the test suite without the tests that take longest (5 minutes on 2 quiet cores)
	@$(COMPILE)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(XDIST) --dist loadgroup

test-core: $(STAMP) ## the tests of `make test` that need no distribution but the core
	@$(COMPILE)
	DOVETAIL_TEST_CORE=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(XDIST) --dist loadgroup

test-long: $(STAMP) ## the test suite with all tests, long runs at reduced counts (20 minutes on 2 cores)
	@$(COMPILE)
	DOVETAIL_TEST_LONG=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(XDIST) --dist loadgroup

test-all: docs   ## the suite with the long runs: statistics, faults, Slurm and Ray (`make slurm`), and the site
	@$(COMPILE)
	DOVETAIL_TEST_FULL=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(XDIST) --dist loadgroup

integrations:    ## joblib, submitit, Hydra, Snakemake, MCP, Optuna: their own tests over ours, in build/integrations
	$(PYTHON) -m venv build/integrations
	build/integrations/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/integrations.txt
	build/integrations/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --editable . --editable packages/integrations
	build/integrations/bin/python tools/integrations.py $(SUITES)

build/backends/.installed: requirements/backends.txt
	$(PYTHON) -m venv build/backends
	build/backends/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/backends.txt
	@touch $@

backends: $(STAMP) build/backends/.installed  ## submitit, Dask and Snakemake as they are, over the shims for Slurm
	$(BIN)/python -m pytest -n0 tests/backends

lint: $(STAMP)   ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports=silent examples/demo/demo.py
	$(BIN)/mypy --follow-imports=silent examples/single-node/run.py
	$(BIN)/lint-imports --no-cache

bench: $(STAMP)  ## benchmarks; each also asserts its result
	$(BIN)/python -m pytest benchmarks -n0 -s --timeout=1200 --benchmark-only --benchmark-columns=median,iqr,rounds

schemas: $(STAMP)  ## regenerate the JSON Schemas of the files that people write, and the list of policies
	$(BIN)/dovetail schema --out docs/reference/schemas
	$(BIN)/python tools/listed.py

figures: $(STAMP)  ## the tables of the documentation that a command prints, by that command (7 minutes on 2 cores)
	$(BIN)/python tools/figures.py docs/explanation/*.md docs/reference/verdicts.md

stale: $(STAMP)  ## the tables of verdicts that rest on something else than today
	$(BIN)/python tools/figures.py --check docs/reference/verdicts.md

docs: $(STAMP)   ## the documentation as a site, in build/site; a warning is an error
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs build/site
	@echo build/site/index.html

site: docs       ## the documentation of each released version and of this tree, side by side, in build/versions
	$(BIN)/python tools/site.py

dist: $(STAMP)   ## wheels and source archives in dist, checked
	rm -rf build/share build/release dist
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	$(BIN)/python tools/share.py build/share
	build/release/bin/hatchling build -d dist
	for package in $(PACKAGES); do (cd $$package && ../../build/release/bin/hatchling build -d ../../dist) || exit 1; done
	build/release/bin/twine check --strict dist/*
	for wheel in dist/*.whl; do build/release/bin/check-wheel-contents $$wheel || exit 1; done
	$(BIN)/python tools/check_dist.py dist

requirements:    ## recompile the pinned requirements (needs uv)
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  $(foreach one,$(PACKAGES),--no-emit-package dovetail-$(notdir $(one))) --all-extras --group dev pyproject.toml -o requirements/dev.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  $(foreach one,$(PACKAGES),--no-emit-package dovetail-$(notdir $(one))) --all-extras --group dev --group peers pyproject.toml -o requirements/peers.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group docs --constraint requirements/dev.txt pyproject.toml -o requirements/docs.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group pyproject.toml:release -o requirements/release.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  pyproject.toml requirements/integrations.in -o requirements/integrations.txt
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group pyproject.toml:backends -o requirements/backends.txt

clean:           ## remove what the targets above made
	rm -rf $(VENV) build docs/generated dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
