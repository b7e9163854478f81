# make demo   200 buyers, 100 units: without a lock, with A1's, with the one to copy
# make matrix every strategy, each held against its expected verdict
# make faults every fault made for real, each strategy held against its expected verdict
# make chaos  random faults at random times, ARGS="--minutes 30 --seed 1"
# make bench  RedisLock beside other locks, and its rush beside the floor
# make http-servers  slow clients and a restart against the nodes' HTTP and other servers
# make test   the whole test suite, on real PostgreSQL and Valkey
# make serve  the shop with a page to project, and Locust's web UI, left running
# make lint   ruff, mypy, import-linter, Django's checks
# make readme put the table of the latest demo into README.md
# make screenshots  the README's pictures, from real runs in Chromium
# make clean  remove .venv, var and results
#
# Needs Python 3.11 or newer, make and a shell. PYTHON=python3.12 chooses another one.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: demo matrix faults chaos bench serve http-servers readme screenshots test lint install install-dev clean

demo: install
	@exec $(BIN)/python -m loadtest $(ARGS)

matrix: install
	@exec $(BIN)/python -m loadtest matrix $(ARGS)

faults: install
	@exec $(BIN)/python -m loadtest faults $(ARGS)

chaos: install
	@exec $(BIN)/python -m loadtest chaos $(ARGS)

bench: install-dev
	@$(BIN)/python -m locks.bench
	@exec $(BIN)/python -m loadtest bench $(ARGS)

serve: install
	@exec $(BIN)/python -m loadtest serve $(ARGS)

http-servers: install
	@exec $(BIN)/python -m loadtest.http_servers $(ARGS)

readme: install
	@$(BIN)/python -m loadtest.readme

screenshots: install-dev
	@exec $(BIN)/python -m loadtest.screenshots

test: install-dev
	@exec $(BIN)/python -m pytest -n 3 --dist loadscope $(ARGS)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: requirements.txt | $(BIN)/python
	@echo "installing requirements.txt into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements.txt | $(BIN)/python
	@echo "installing requirements-dev.txt into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) var results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
