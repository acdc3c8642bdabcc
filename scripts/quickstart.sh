#!/usr/bin/env bash
# From raw text to answers over gRPC and a page to try them on, with a small ALBERT trained here: about eight minutes on two
# cores, the installation included.
#   bash scripts/quickstart.sh                        the help texts of Python as corpus
#   bash scripts/quickstart.sh --corpus=PATH          your text: .txt or .jsonl, each also .gz; a file or a glob
#   bash scripts/quickstart.sh --pretrained           instead: serves a published model of sentences, and searches the docs with it
#   bash scripts/quickstart.sh --once                 ends after the summary, and does not go on serving
#   bash scripts/quickstart.sh --help                 the other arguments
set -euo pipefail
export QUICKSTART_CALLER=$PWD
cd "$(dirname "$0")/.."
. scripts/environment.sh
ensure_environment requirements.txt requirements/gateway.txt
exec "$PYTHON" -m scripts.quickstart "$@"
