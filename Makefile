# make demo    install into .venv, then see real bugs and a production workload, recorded and checked
# make test    everything CI runs: lint, types, other interpreters, all tests
# make engines the tests that need real engines, in an environment of their own
# make soak    the long runs
# make releases  earlier releases of an engine, for the long runs that drive public bugs in them
# make gpu-check  kernels, bandwidth and replays on a GPU; skips without one
# make docs    reference and manual pages, from the code, and the site in out/site, every link checked
# make sdist   the sources as a package, in out/
# make sbom    what an installation consists of, as CycloneDX, in out/
# make wheelhouse  hkvtool and all that it needs as wheels, in out/, for machines without a network
# make clean   remove what was built
#
# Checks run on an installed wheel from out/, never from here: with this folder as working
# directory its hkvtool/ would shadow the installed one and miss the rooms that lie beside it.

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3 /usr/bin/python3, \
	$(shell $(p) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
		2>/dev/null && echo $(p))))
WORKERS ?= 2
PYTEST_ARGS ?=

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PINS := -c constraints/torch.txt -c constraints/py311.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
DOCS := .venv-docs
DOC := $(CURDIR)/$(DOCS)/bin/python -m
OFFLINE := .venv-offline
EXTRAS ?= listen,metrics,perfetto,report
ENGINES := .venv-engines
ENGINE := $(CURDIR)/$(ENGINES)/bin/python
ENGINE_PYTEST = cd out && $(ENGINE) -m pytest -c ../pyproject.toml --rootdir=.. -p no:cacheprovider
# In a process each: LMCache changes torch as it is imported, and vLLM then does not start.
ALONE := test_lmcache.py test_transformers_conformance.py test_vllm_conformance.py
TOGETHER := ../tests/engines $(ALONE:%=--ignore=../tests/engines/%)
SGLANGS := .venv-sglang
SGLANG := $(CURDIR)/$(SGLANGS)/bin/python
SGLANG_PYTEST = cd out && $(SGLANG) -m pytest -c ../pyproject.toml --rootdir=.. \
	-p no:cacheprovider ../tests/engines_sglang
PYTEST = cd out && $(BIN)/python -m pytest -c ../pyproject.toml --rootdir=.. -p no:cacheprovider

unexport PYTHONPATH PYTHONHOME MYPYPATH

.PHONY: demo test lint types pythons tests engines sglang releases soak docs sbom wheelhouse sdist clean wheel \
	install install-dev

demo: install
	cd out && $(BIN)/hkvtool demo
	@echo 'For these: cd out; export PATH="$(BIN):$$PATH"'

test: lint types pythons tests engines

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-dev
	cd out && $(BIN)/mypy --config-file ../pyproject.toml --cache-dir .mypy_cache -p hkvtool

# The rooms that run inside engines and the store, on the other interpreters of this machine.
pythons: install-dev
	$(BIN)/python tests/other_pythons.py out/dist/*.whl $(WORKERS)

tests: install-dev
	$(PYTEST) ../tests -n $(WORKERS) $(PYTEST_ARGS)

# As a user would have it there: nothing that the engine pins may change.
engines: wheel $(ENGINES)/made sglang
	$(ENGINE) -m pip --disable-pip-version-check -qq install --no-deps --force-reinstall \
		out/dist/*.whl ./examples/hkvtool-lmcache
	rm -rf examples/hkvtool-lmcache/build
	$(ENGINE_PYTEST) $(TOGETHER) -n $(WORKERS) $(PYTEST_ARGS)
	for one in $(ALONE); do ($(ENGINE_PYTEST) ../tests/engines/$$one $(PYTEST_ARGS)) || exit 1; done

# An environment of its own: it pins another transformers, and its kernels are left out.
sglang: wheel $(SGLANGS)/made
	$(SGLANG) -m pip --disable-pip-version-check -qq install --no-deps --force-reinstall \
		out/dist/*.whl
	$(SGLANG_PYTEST) -n $(WORKERS) $(PYTEST_ARGS)

soak: install-dev engines
	$(PYTEST) ../tests --soak --hypothesis-profile=soak -n $(WORKERS) $(PYTEST_ARGS)
	$(ENGINE_PYTEST) $(TOGETHER) --soak -n $(WORKERS) $(PYTEST_ARGS)
	for one in $(ALONE); do ($(ENGINE_PYTEST) ../tests/engines/$$one --soak $(PYTEST_ARGS)) || exit 1; done
	$(SGLANG_PYTEST) --soak -n $(WORKERS) $(PYTEST_ARGS)

gpu-check: install-dev
	cd out && $(BIN)/python ../tests/gpu_check.py $(TRACES)

releases: $(ENGINES)/made
	$(ENGINE) tests/engines/real_bugs/releases.py .releases

# What is written from the code is written by an installed package, like everything that runs it.
docs: $(DOCS)/made
	rm -rf build hkvtool.egg-info
	$(DOCS)/bin/python -m pip --disable-pip-version-check -qq install --no-deps --force-reinstall .
	rm -rf build hkvtool.egg-info
	mkdir -p out
	cd out && $(DOC) hkvtool.model.reference ../docs/reference
	cd out && $(DOC) hkvtool.store.reference ../docs/reference
	cd out && $(DOC) hkvtool.report.rule_pictures ../docs/reference/pictures
	cd out && $(DOC) hkvtool.cli.man_page ../docs/man
	$(DOCS)/bin/mkdocs build --strict

# What a wheel is made from, by itself.
sdist: $(DOCS)/made
	$(DOCS)/bin/python -m pip --disable-pip-version-check -qq install 'build>=1.2,<2'
	$(DOCS)/bin/python -m build --sdist -o out/sdist . >/dev/null
	rm -rf build hkvtool.egg-info

# All that `pip install --no-index` needs on a machine like this one, by the same pins.
wheelhouse: wheel
	rm -rf out/wheelhouse
	$(PIP) wheel $(PINS) -w out/wheelhouse "$$(echo out/dist/*.whl)[$(EXTRAS)]"

# Of an environment with that and nothing else, so of what a user gets.
sbom: wheelhouse
	$(PYTHON) -m venv --clear $(OFFLINE)
	$(OFFLINE)/bin/python -m pip -qq install --no-index --find-links out/wheelhouse "hkvtool[$(EXTRAS)]"
	$(PYTHON) -m venv --clear .venv-sbom
	.venv-sbom/bin/python -m pip --disable-pip-version-check -qq install 'cyclonedx-bom>=7,<8'
	.venv-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--of JSON -o out/hkvtool.cdx.json $(OFFLINE)/bin/python

# setuptools keeps files in build/ that the sources no longer have.
wheel: $(VENV)/torch
	rm -rf build hkvtool.egg-info out/dist
	mkdir -p out/dist
	$(PIP) wheel --no-deps -w out/dist .
	rm -rf build hkvtool.egg-info

install: wheel
	$(PIP) install $(PINS) out/dist/*.whl
	$(PIP) install --no-deps --force-reinstall out/dist/*.whl

install-dev: install
	$(PIP) install $(PINS) "$$(echo out/dist/*.whl)[dev]"

# torch comes first and alone: asked for as somebody's dependency, it may resolve to another build.
$(VENV)/torch: constraints/torch.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer with venv; set PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install -r constraints/torch.txt
	touch $@

# vLLM brings builds of three packages along that break at import beside a CPU build of torch.
$(ENGINES)/made: constraints/torch.txt constraints/engines.txt
	$(PYTHON) -m venv --clear $(ENGINES)
	$(ENGINE) -m pip --disable-pip-version-check -qq install -r constraints/torch.txt
	$(ENGINE) -m pip --disable-pip-version-check -qq install -c constraints/torch.txt \
		-r constraints/engines.txt
	$(ENGINE) -m pip --disable-pip-version-check -qq install --no-deps lmcache==0.5.6
	$(ENGINE) -m pip -qq uninstall -y torchvision torchaudio torchcodec
	touch $@

$(SGLANGS)/made: constraints/torch.txt constraints/sglang.txt
	$(PYTHON) -m venv --clear $(SGLANGS)
	$(SGLANG) -m pip --disable-pip-version-check -qq install -r constraints/torch.txt
	$(SGLANG) -m pip --disable-pip-version-check -qq install -c constraints/torch.txt \
		-r constraints/sglang.txt
	$(SGLANG) -m pip --disable-pip-version-check -qq install --no-deps sglang==0.5.23
	touch $@

$(DOCS)/made: constraints/py311.txt
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check -qq install -c constraints/py311.txt \
		mkdocs numpy typer
	touch $@

clean:
	rm -rf .venv .venv-* out build dist hkvtool.egg-info
