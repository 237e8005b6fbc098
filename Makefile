# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SITE := .venv/.site
# Tests wait for processes, disks and clocks a good part of their time: one more of them than cores.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(1 + (os.cpu_count() or 1))")

.PHONY: demo test quick format lint types layers check soak mutants bench results docs site clean

demo: $(READY)
	$(BIN)/python examples/demo.py --out runs/demo

# One process per core with one thread each: processes that all take every core wait for one another.
# A file's tests stay in one process, because they share the runs trained for them.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# What needs no test to be seen, side by side; one that fails does not hide the others.
quick: $(READY)
	$(MAKE) --no-print-directory --keep-going --jobs 4 format lint types layers

format: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/pyright

layers: $(READY)
	$(BIN)/lint-imports

check: quick test

# All long proofs, or one part of the hostile ones: make soak PART=files, commands, kills or disk.
# tests/hostile/counts.py says how to ask for more cases, other seeds, and the counts as JSON.
soak: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow $(if $(PART),-s tests/hostile/test_$(PART).py)

# Small bugs planted one at a time; lists those that no test notices. PART=metrics, N=80.
mutants: $(READY)
	$(BIN)/python tests/mutants.py $(if $(PART),--part $(PART)) $(if $(N),--n $(N))

bench: $(READY)
	$(BIN)/python benchmarks/head_cpu.py
	$(BIN)/python benchmarks/train_loop.py

# The reports of docs/results.md with their pages, under runs/results; meant for a GPU.
results: $(READY)
	$(BIN)/python benchmarks/results.py

docs: $(READY)
	$(BIN)/arcwise margins --page docs/margins.md

# The pages, the reference and the search, in site/.
site: $(SITE)
	$(BIN)/python docs/make_site.py

clean:
	rm -rf .venv runs build site .cache .pytest_cache .ruff_cache .hypothesis

# The stamp is written last: an interrupted installation is taken up again.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

$(SITE): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	touch $(SITE)
