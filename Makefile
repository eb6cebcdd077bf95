# `make demo` and `make test` do everything on a machine with Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup demo study test test-all lint docs bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt torchattacks  # it pins an old requests
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
	for name in spine place coverage store evaluate workers corruptions perturbed attacks captions \
	  twins similarity predictiveness report training probes \
	  heads; do $(BIN)/python -m benchmarks.$$name; done

clean:
	rm -rf $(VENV) demo build .pytest_cache .mypy_cache .ruff_cache
