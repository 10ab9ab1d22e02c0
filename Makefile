# One word per task. `make demo` and `make test` prepare everything that they need, and are quick the second time.

PYTHON ?= python3
PORT ?= 8501
STORE ?= fusionscope-store
WHAT ?= compile calls growth targets agree library memory
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := collector storage app sample_models

.PHONY: demo test lint bench drift clean

demo: $(VENV)/.installed  ## record the sample models, then serve the dashboard
	@command -v g++ >/dev/null || { echo "make demo needs g++, which torch.compile uses on a CPU." >&2; exit 1; }
	@$(BIN)/fusionscope samples --record --store $(STORE) || echo "The dashboard shows the other samples." >&2
	@exec $(BIN)/fusionscope app --store $(STORE) --port $(PORT)

test: $(VENV)/.developing $(VENV)/.browser lint  ## everything that must be clean before a commit
	$(BIN)/python -m pytest

lint: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p .types/fusionscope && ln -sfn $(PACKAGES:%=$(CURDIR)/%) -t .types/fusionscope  # mypy follows no editable install
	cd .types && MYPYPATH=. ../$(BIN)/mypy --config-file ../pyproject.toml --namespace-packages --explicit-package-bases $(PACKAGES:%=-p fusionscope.%)

bench: $(VENV)/.developing  ## what recording and the pages cost, in minutes: make bench, or one of them with make bench WHAT=growth
	$(BIN)/python tests/bench.py $(WHAT)

drift: $(VENV)/.developing  ## which hook targets another torch changes: make drift TORCH=2.14.1
	@test -n "$(TORCH)" || { echo "Which torch? make drift TORCH=2.14.1" >&2; exit 1; }
	$(BIN)/python tests/drift.py $(TORCH)

clean:
	rm -rf $(VENV) .types build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

$(VENV)/.created:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "Fusionscope needs Python 3.11 or newer: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv is missing: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created requirements.txt pyproject.toml
	$(BIN)/pip install --quiet --requirement requirements.txt
	@touch $@

$(VENV)/.developing: $(VENV)/.installed requirements-dev.txt
	$(BIN)/pip install --quiet --requirement requirements-dev.txt
	@touch $@

# Debian's Chromium where it can be installed, else the one that Playwright brings.
$(VENV)/.browser: $(VENV)/.developing
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -qq -y chromium >/dev/null; \
	else $(BIN)/playwright install chromium; fi
	@touch $@
