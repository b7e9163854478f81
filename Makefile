# make doctor what this machine has and lacks, and what to do next
# make demo   200 buyers, 100 units: without a lock, with an article's, with the one to copy
# make matrix every strategy, each compared with its expected verdict
# make faults every fault made for real, each strategy compared with its expected verdict
# make chaos  random faults at random times, ARGS="--minutes 30 --seed 1"
# make growth rushes of 200 to 5,000 buyers: seconds, memory, threads, processors
# make bench  RedisLock beside other locks, and its rush beside the floor
# make load   sustained sales: closed or open model, one hot product or many
# make test   the whole test suite, on real PostgreSQL and Valkey
# make test-whole what make test leaves out: whole commands, browsers, clusters
# make test-workshop  every exercise, solution and wrong solution of the workshop against its checks
# make fuzz   10,000 requests at random, to a node in a demo and to one that is none
# make workshop  lessons: predict, run, observe, and repair code that is checked on real servers
# make example-shop ARGS="fastapi --rush 3"  a shop that is not ours, installed and rushed
# make serve  the shop with a page to project, and Locust's web UI, left running
# make test-fast  the tests that need no server, in seconds
# make lint   ruff, mypy, import-linter, Django's checks
# make hooks  the same before each commit of yours
# make lock   the lock files again, after a change in requirements*.txt; ARGS=--upgrade: the newest
# make audit  the locked packages against a database of known vulnerabilities
# make licences  the table of licences in docs/licences.md
# make sbom   what an installation contains, var/sbom.cdx.json
# make readme put the table of the latest demo into README.md
# make screenshots  the README's pictures, from real runs in Chromium
# make clean  remove .venv, .venv-tools, var and results
#
# Needs Python 3.11 or newer, make and a shell. PYTHON=python3.12 chooses another one.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TOOLS := $(VENV)-tools
ARGS ?=

# Whatever the locale is, files are UTF-8; and `python -m` has to find what is here.
export PYTHONUTF8 := 1
unexport PYTHONSAFEPATH

.PHONY: example-shop
.PHONY: doctor demo matrix faults chaos bench load growth serve workshop readme screenshots
.PHONY: test test-fast test-whole test-workshop fuzz lint hooks lock audit sbom licences install install-dev clean

# With .venv it also starts the servers; without it any Python will do.
doctor:
	@if [ -x $(BIN)/python ]; then exec $(BIN)/python -m servers.doctor; fi; \
	  exec $(PYTHON) -m servers.doctor

demo: install
	@exec $(BIN)/python -m loadtest $(ARGS)

matrix: install
	@exec $(BIN)/python -m loadtest matrix $(ARGS)

faults: install
	@exec $(BIN)/python -m loadtest faults $(ARGS)

chaos: install
	@exec $(BIN)/python -m loadtest chaos $(ARGS)

growth: install
	@exec $(BIN)/python -m loadtest growth $(ARGS)

bench: install-dev
	@$(BIN)/python -m locks.bench
	@exec $(BIN)/python -m loadtest bench $(ARGS)

load: install
	@exec $(BIN)/python -m loadtest load $(ARGS)

serve: install
	@exec $(BIN)/python -m loadtest serve $(ARGS)

example-shop: install
	@exec $(BIN)/python -m examples.targets $(ARGS)

workshop: install
	@exec $(BIN)/python -m workshop $(ARGS)

readme: install
	@$(BIN)/python -m loadtest.commands.readme

screenshots: install-dev
	@exec $(BIN)/python -m loadtest.commands.screenshots

test: install-dev
	@exec $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-whole: install-dev
	@exec $(BIN)/python -m pytest --whole -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-workshop: install-dev
	@exec $(BIN)/python -m pytest -n 3 --dist loadgroup workshop/tests/exercises.py workshop/tests/sessions.py \
	  workshop/tests/packs.py $(ARGS)

# By path: these need neither PostgreSQL nor Valkey, so the plugin that starts both stays out.
FAST = tests $(addprefix loadtest/tests/test_,$(addsuffix .py,\
  compose contrast database_proofs export fault_choice fault_proofs fault_steps faults_command \
  gathering growth history html_report judge_by_chance load_command load_conductor \
  load_figures load_judging lock_rules many_rows measure neutered_faults open_answers \
  open_model planted promises report rules rush target target_asking target_wrong terminal \
  timeline verdict worker_messages))

test-fast: install-dev
	@exec $(BIN)/python -m pytest -q -o addopts="--strict-markers --strict-config" $(FAST) $(ARGS)

fuzz: install-dev
	@FUZZ_REQUESTS=10000 exec $(BIN)/python -m pytest shop/tests/test_fuzz.py -q -s $(ARGS)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run

hooks: install-dev $(TOOLS)/.installed
	@$(TOOLS)/bin/pre-commit install

lock: $(TOOLS)/.installed
	@exec $(TOOLS)/bin/python -m tools.lock $(ARGS)

audit: $(TOOLS)/.installed
	@exec $(TOOLS)/bin/python -m tools.audit $(ARGS)

licences: install-dev
	@exec $(BIN)/python -m tools.licences

sbom: $(TOOLS)/.installed
	@exec $(TOOLS)/bin/python -m tools.sbom $(ARGS)

# From the locks: what you run is what CI ran, file by file, and no release of today breaks it.
# requirements*.txt are the ranges that the locks are made from.
install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --require-hashes
NOT_INSTALLED = { echo "pip could not install that. This machine:"; $(PYTHON) -m servers.doctor; exit 1; }

$(VENV)/bin/python $(TOOLS)/bin/python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) is not there: install Python 3.11 or newer, or make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(@:/bin/python=) || \
	  { rm -rf $(@:/bin/python=); echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: requirements.lock | $(BIN)/python
	@echo "installing requirements.lock into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -r requirements.lock || $(NOT_INSTALLED)
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock requirements.lock | $(BIN)/python
	@echo "installing requirements-dev.lock into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -r requirements-dev.lock || $(NOT_INSTALLED)
	@touch $(VENV)/.installed $@

$(TOOLS)/.installed: requirements-tools.lock | $(TOOLS)/bin/python
	@echo "installing requirements-tools.lock into $(TOOLS)"
	@$(TOOLS)/bin/python $(PIP_INSTALL) -r requirements-tools.lock || $(NOT_INSTALLED)
	@touch $@

clean:
	@rm -rf $(VENV) $(TOOLS) var results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache || \
	  { echo "some of it belongs to another user: sudo make clean"; exit 1; }
