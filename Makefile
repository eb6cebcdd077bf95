# `make demo` and `make test` do everything on a machine with Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: setup demo study test test-all lint docs bench audit clean

setup: $(STAMP)

# first all that is locked by hash, then torch (and what other platforms need) by version
$(STAMP): pyproject.toml constraints.txt requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --no-deps -r requirements.lock
	$(PIP) install --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	@$(BIN)/python -m examples.digits $(if $(DATA),--data $(DATA))

study: setup
	@$(BIN)/python -m examples.digits --size full $(if $(DATA),--data $(DATA))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2 -m 'not slow'

test-all: lint
	$(BIN)/python -m pytest -n 2

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/site/index.html, or with search: $(BIN)/python -m http.server -d build/site"

bench: setup
	for name in spine place coverage store remote evaluate workers corruptions perturbed attacks captions \
	  twins similarity predictiveness report training probes \
	  heads; do $(BIN)/python -m benchmarks.$$name; done

audit: setup
	@$(BIN)/python -m tools.audit

clean:
	rm -rf $(VENV) demo build .pytest_cache .mypy_cache .ruff_cache
