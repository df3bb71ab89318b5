# Each target installs what it needs into .venv and calls the package's command line.
#   make book    execute the notebooks and build the book        make check   the tests under 3 minutes
#   make lab     open the notebooks in JupyterLab                make test    all tests
#   make bench   compare speed with other engines                make clean   remove results (VENV too: distclean)

VENV   ?= .venv
SCALE  ?= ci
# The first Python of these that the book runs on; python3 is tried last so that its absence is what is told
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell $(p) -c \
  'import sys; print("$(p)" if (3, 11) <= sys.version_info[:2] <= (3, 13) else "")' 2>/dev/null)) python3)

BIN     := $(VENV)/bin
# Python compiles a module when it is first imported: most of what is installed never is
INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check
PYTEST  := $(BIN)/python -m pytest
NEEDS   := pyproject.toml requirements.lock
# Tests that judge no time and open no page share the cores, a thread each; the others run alone
WORKERS ?= 2
SHARED  := -n $(WORKERS) --dist worksteal
FAST    := $(SHARED) -m "not slow and not notebook and not browser and not gpu"

.PHONY: help book lab check test test-lowest test-colab bench clean distclean
help:
	@sed -n '2,4s/^#   //p' Makefile

book: $(VENV)/.book
	$(BIN)/python -m inferlab run --scale $(SCALE)
	$(BIN)/python -m inferlab book

lab: $(VENV)/.lab
	@$(BIN)/python -m ipykernel install --prefix $(VENV) --name python3 >/dev/null
	JUPYTER_PREFER_ENV_PATH=1 $(BIN)/python -m jupyterlab chapters

check: $(VENV)/.dev
	$(BIN)/python -m ruff check .
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(PYTEST) $(FAST)

test: $(VENV)/.dev
	$(BIN)/python -m ruff check .
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(PYTEST) $(SHARED) -m "not notebook and not browser and not gpu"
	$(PYTEST) -m "notebook or browser or gpu"

# The fast tests with the lowest versions that pyproject.toml allows; torch alone stays as locked
test-lowest: $(VENV)-lowest/.lowest
	OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest $(FAST)

# The fast tests with what Google Colab preinstalls; torch alone stays as locked
test-colab: $(VENV)-colab/.colab
	OMP_NUM_THREADS=1 $(VENV)-colab/bin/python -m pytest $(FAST)

bench: $(VENV)/.dev
	-$(INSTALL) 'llama-cpp-python>=0.3.16'  # compiled here, minutes; where that fails it is left out
	$(BIN)/python -m benchmarks

clean:
	rm -rf _build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

distclean: clean
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-colab

$(VENV)/.book: $(NEEDS) | $(VENV)/.python
	$(INSTALL) -c requirements.lock -e '.[book]'
	@touch $@

$(VENV)/.lab: $(NEEDS) | $(VENV)/.python
	$(INSTALL) -c requirements.lock -e '.[book,lab]'
	@touch $@ $(VENV)/.book

$(VENV)/.dev: $(NEEDS) | $(VENV)/.python
	$(INSTALL) -c requirements.lock -e '.[dev]'
	@touch $@ $(VENV)/.book

$(VENV)-lowest/.lowest: $(NEEDS) .ci/lowest.py | $(VENV)-lowest/.python
	$(PYTHON) .ci/lowest.py > $(VENV)-lowest/constraints.txt
	$(VENV)-lowest/bin/python -m pip install --no-compile --quiet --disable-pip-version-check \
	  -c $(VENV)-lowest/constraints.txt -e '.[dev]'
	@touch $@

# Colab's ipykernel comes last and alone: what makes the book asks for a newer one
$(VENV)-colab/.colab: $(NEEDS) .ci/colab.py tests/data/colab_pip_freeze_gpu_2026-08-19.txt | $(VENV)-colab/.python
	$(PYTHON) .ci/colab.py > $(VENV)-colab/constraints.txt
	$(VENV)-colab/bin/python -m pip install --no-compile --quiet --disable-pip-version-check \
	  -c $(VENV)-colab/constraints.txt -e '.[dev]' pandas
	$(VENV)-colab/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --no-deps \
	  $$(grep '^ipykernel==' tests/data/colab_pip_freeze_gpu_2026-08-19.txt)
	@touch $@

%/.python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || \
	  { echo "The book needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is not one of them: install one," \
	    "or name it with make PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "'$(PYTHON)' comes without venv: install it (Debian, Ubuntu: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $*
	@touch $@
