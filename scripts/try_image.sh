#!/usr/bin/env bash
# Builds serving/deploy/Dockerfile with podman where no image can be pulled, runs it, and asks its three APIs. As root, on Debian:
#   apt-get install podman runc debootstrap curl
#   bash scripts/try_image.sh WORK_FOLDER PYTHON_PREFIX MODEL_FOLDER
# PYTHON_PREFIX is a Python 3.12 such as pyenv's versions/3.12.1; MODEL_FOLDER a fine-tuned model with its tokenizer.
# The two base images are stood in for: python:3.12-slim-bookworm by Debian's smallest system with that Python in
# /usr/local; tensorflow/serving by a tensorflow_model_server that runs the embedded server with the same flags.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 3 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
work=$(realpath -m "$1") prefix=$(realpath "$2") model=$(realpath "$3")
PORTS=(8080 8500 8501)
mkdir -p "$work"
# Without an init system's cgroups: files of their own for storage, and runc, which takes what is there.
podman() {
  command podman --root "$work/storage" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime /usr/sbin/runc "$@"
}

if ! podman image exists docker.io/library/python:3.12-slim-bookworm; then
  libraries=ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libncursesw6,libreadline8,libsqlite3-0,libssl3,netbase,tzdata,zlib1g
  [ -e "$work/root/etc/debian_version" ] || debootstrap --variant=minbase --include="$libraries" bookworm "$work/root"
  cp -a "$prefix/." "$work/root/usr/local/"
  # Installed scripts name the interpreter by the path that it had.
  grep -lI '^#!.*python' "$work"/root/usr/local/bin/* | xargs sed -i '1s|^#!.*python.*|#!/usr/local/bin/python|'
  # The package index is reached as it is from this machine.
  cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/"
  [ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$work/root/etc/"
  tar -C "$work/root" -c . | podman import --change 'CMD ["python3"]' - docker.io/library/python:3.12-slim-bookworm
fi
mkdir -p "$work/server/usr/bin"
cat >"$work/server/usr/bin/tensorflow_model_server" <<'STAND_IN'
#!/bin/sh
exec /usr/local/bin/python -m serving.model_server --bind_address=0.0.0.0 "$@"
STAND_IN
chmod +x "$work/server/usr/bin/tensorflow_model_server"
tar -C "$work/server" -c . | podman import - docker.io/tensorflow/serving:2.20.0

rm -rf "$work/dist"
"${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$work/dist" .
podman build --pull=never --isolation chroot -f serving/deploy/Dockerfile -t albert-tf "$work/dist"

container=$(podman run --detach --init --network host --ulimit nofile=8192:8192 --ulimit nproc=4096:4096 \
  -v "$model:/model:ro" albert-tf --model=/model --name=tried)
trap 'podman logs "$container"; podman rm --force --time 30 "$container" >/dev/null' EXIT
curl --silent --show-error --fail --retry 120 --retry-delay 2 --retry-all-errors "http://127.0.0.1:${PORTS[0]}/health/ready"
echo
curl --silent --show-error --fail "http://127.0.0.1:${PORTS[0]}/v1/models"
echo
curl --silent --show-error --fail "http://127.0.0.1:${PORTS[0]}/predict" -d '{"inputs": "Where is my parcel?"}'
echo
curl --silent --show-error --fail "http://127.0.0.1:${PORTS[2]}/v1/models/tried:predict" -d '{"instances": ["Where is my parcel?"]}'
echo
"${PYTHON:-python3}" -m serving.client --target="127.0.0.1:${PORTS[1]}" --model=tried --text="Where is my parcel?"
podman exec "$container" id
