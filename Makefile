# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check soak bench docs clean

demo: $(READY)
	$(BIN)/python examples/demo.py --out runs/demo

test: $(READY)
	$(BIN)/python -m pytest -m "not slow"

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow"

soak: $(READY)
	$(BIN)/python -m pytest -m slow

bench: $(READY)
	$(BIN)/python benchmarks/head_cpu.py
	$(BIN)/python benchmarks/train_loop.py

docs: $(READY)
	$(BIN)/arcwise margins --page docs/margins.md

clean:
	rm -rf .venv runs .pytest_cache .ruff_cache .hypothesis

# The stamp is written last: an interrupted installation is taken up again.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)
