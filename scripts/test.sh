#!/usr/bin/env bash
# Lint, format check, types and tests, on the .venv that quickstart.sh uses too.
#   bash scripts/test.sh                     everything that CI runs
#   bash scripts/test.sh -m slow             the slow and optional ones (`python -m scripts.slow` runs them by groups)
#   bash scripts/test.sh tests/tfrecords     any other pytest arguments
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
ensure_environment requirements.txt requirements/test.txt
# Tests start many processes; without stored bytecode each would compile what it imports, up to 2 s of a processor.
unset PYTHONDONTWRITEBYTECODE

"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy
exec "$PYTHON" -m pytest -n "${TEST_WORKERS:-2}" --dist loadfile --no-loadscope-reorder "$@"
