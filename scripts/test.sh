#!/usr/bin/env bash
# Lint, format check, types and tests, on the .venv that quickstart.sh uses too.
#   bash scripts/test.sh                     everything that CI runs
#   bash scripts/test.sh --changed[=COMMIT]  the tests near what changed since COMMIT (HEAD): seconds, while you edit
#   bash scripts/test.sh --affected[=COMMIT] every test that what changed leads to
#   bash scripts/test.sh -m slow             the slow and optional ones (`python -m scripts.slow` runs them by groups)
#   bash scripts/test.sh tests/tfrecords     any other pytest arguments; those above may be followed by some too
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
ensure_environment requirements.txt requirements/test.txt
# Tests start many processes; without stored bytecode each would compile what it imports, up to 2 s of a processor.
unset PYTHONDONTWRITEBYTECODE

"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy
case "${1:-}" in
  --changed* | --affected*)
    tests=$("$PYTHON" -m scripts.changed_tests "$1")
    echo "$tests"
    shift
    # Names of our test files hold no spaces.
    set -- $tests "$@"
    ;;
esac
exec "$PYTHON" -m pytest -n "${TEST_WORKERS:-2}" --dist loadfile --no-loadscope-reorder "$@"
