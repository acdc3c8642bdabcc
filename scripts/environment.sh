# Sourced by the scripts: makes .venv once, installs again when the requirements change, and sets $PYTHON.
# ensure_environment FILE... : the requirement files that must be installed.

fail() {
  echo "error: $*" >&2
  exit 1
}

find_interpreter() {
  local candidate
  for candidate in ${ALBERT_TF_PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  fail "${ALBERT_TF_PYTHON:-no python3 on the PATH} is not Python 3.11, 3.12 or 3.13 (TensorFlow 2.21 has wheels for these only); install one, or name it: ALBERT_TF_PYTHON=/path/to/python3.12"
}

ensure_environment() {
  local venv=$PWD/.venv interpreter wanted requirement
  local arguments=()
  PYTHON=$venv/bin/python
  interpreter=$(find_interpreter) || exit 1
  for requirement in "$@"; do
    arguments+=(-r "$requirement")
    # One stamp a file, holding its content: written last, so an interrupted install is repeated.
    wanted=$venv/.installed-${requirement//\//-}
    cmp -s "$requirement" "$wanted" || local stale=1
  done
  if [ -z "${stale:-}" ] && "$PYTHON" -c '' 2>/dev/null; then
    return
  fi
  echo "Setting up .venv with $("$interpreter" --version): TensorFlow and its company, a few minutes on the first run ..."
  # A .venv whose interpreter has gone (upgraded, moved checkout) cannot be mended in place.
  "$PYTHON" -m pip --version >/dev/null 2>&1 || rm -rf "$venv"
  [ -x "$PYTHON" ] || "$interpreter" -m venv "$venv" ||
    fail "$interpreter cannot make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check "${arguments[@]}" ||
    fail "pip could not install ${*}; is a package index reachable?"
  for requirement in "$@"; do
    cp "$requirement" "$venv/.installed-${requirement//\//-}"
  done
}
