#!/usr/bin/env bash
# From raw text to answers over gRPC, on a small ALBERT trained here: about six minutes on two cores.
#   bash scripts/quickstart.sh                        the help texts of Python as corpus
#   bash scripts/quickstart.sh --corpus=PATH          your text: .txt or .jsonl, each also .gz; a file, folder or glob
#   bash scripts/quickstart.sh --pretrained           instead: serves a published model of sentences, and searches the docs with it
#   bash scripts/quickstart.sh --keep_serving         goes on serving at the end, with a page to try the model on
#   bash scripts/quickstart.sh --help                 the other arguments
set -euo pipefail
export QUICKSTART_CALLER=$PWD
cd "$(dirname "$0")/.."
. scripts/environment.sh
requirements=(requirements.txt)
module=scripts.quickstart
case " $* " in *" --pretrained "*) module=scripts.pretrained ;; esac
case " $* " in *" --keep_serving "* | *" --pretrained "*) requirements+=(requirements-gateway.txt) ;; esac
ensure_environment "${requirements[@]}"
arguments=()
for argument in "$@"; do
  [ "$argument" = --pretrained ] || arguments+=("$argument")
done
exec "$PYTHON" -m "$module" "${arguments[@]}"
