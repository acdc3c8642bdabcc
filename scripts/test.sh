#!/usr/bin/env bash
# Lint, format check and tests, on the .venv that quickstart.sh uses too.
#   bash scripts/test.sh                     everything that CI runs
#   bash scripts/test.sh -m slow             the slow and optional ones
#   bash scripts/test.sh tests/tfrecords     any other pytest arguments
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
ensure_environment requirements.txt requirements-test.txt

"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
exec "$PYTHON" -m pytest -n "${TEST_WORKERS:-2}" --dist loadfile --no-loadscope-reorder --durations=15 "$@"
