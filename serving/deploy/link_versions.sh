#!/bin/sh
# Starts a model server on those versions of its models that the CPU of this machine can run:
#   MODEL_NAME=sst2 sh link_versions.sh COMMAND [FLAG...]
#
# A server whose newest version does not load when it starts ends, whatever older version there is, and a restarted
# container would end again and again. So COMMAND reads folders of links, $LINKS/NAME for each NAME in MODEL_NAME (several
# are separated by blanks), with a link to each version in $MODELS/NAME that can run here. What a version needs is written
# in its assets.extra/manifest.json by serving.export (compute.requires); a version without that file is linked. While
# COMMAND runs, the links follow versions that come and go, every $LINK_SECONDS.
# It needs no Python, only what the tensorflow/serving image has.
# A tensorflow_model_server gets as many threads as the container has cores, unless FLAGs say another number.
set -u
MODELS=${MODELS:-/models}
# Memory that every container may write to, also with a read-only root file system.
# Outside a container, where other users may write there too, give a folder of your own.
LINKS=${LINKS:-/dev/shm/models}
# Where the files of Linux are; tests have others.
root=${ALBERT_TF_ROOT:-}
cpu_info=${ALBERT_TF_CPUINFO:-/proc/cpuinfo}
# The links lead from another folder.
case $MODELS in /*) ;; *) MODELS=$PWD/$MODELS ;; esac

if [ $# -eq 0 ] || [ -z "${MODEL_NAME:-}" ]; then
    echo "usage: MODEL_NAME=NAME sh link_versions.sh COMMAND [FLAG...]" >&2
    exit 2
fi
is_known=$(head -c 1 "$cpu_info" 2>/dev/null)
flags=$(sed -n 's/^flags[[:space:]]*://p' "$cpu_info" 2>/dev/null | head -n 1)
reported=" "

# Returns whether this CPU has the flags in `needs`, such as "avx512f, avx512bw".
can_run() {
    # As the versions do themselves: where nothing is known of the CPU, nothing is checked.
    [ -n "$is_known" ] || return 0
    for word in $needs; do
        case " $flags " in *" ${word%,} "*) ;; *) return 1 ;; esac
    done
}

# Brings the links of model $1 up to date; `refused` lists the versions that were not refused before.
link_model() {
    refused=""
    # A share that is away for a moment must not unload a model.
    [ -d "$MODELS/$1" ] || return 0
    # Of versions that are gone, and of another start with other MODELS.
    for link in "$LINKS/$1"/*; do
        [ "$link" -ef "$MODELS/$1/${link##*/}" ] || rm -f "$link"
    done
    for version in "$MODELS/$1"/[0-9]*; do
        number=${version##*/}
        case $number in *[!0-9]*) continue ;; esac
        needs=$(sed -n 's/.*"requires": *"[^"]*a CPU with \([a-z0-9_, ]*\)".*/\1/p' \
            "$version/assets.extra/manifest.json" 2>/dev/null)
        if can_run; then
            [ -h "$LINKS/$1/$number" ] || ln -s "$version" "$LINKS/$1/$number"
            continue
        fi
        rm -f "$LINKS/$1/$number"
        case $reported in *" $1/$number "*) continue ;; esac
        reported="$reported$1/$number "
        refused="$refused; version $number needs a CPU with $needs"
    done
    if [ -n "$refused" ]; then refused=${refused#; }; fi
}

for name in $MODEL_NAME; do
    mkdir -p "$LINKS/$name" || exit 1
    link_model "$name"
    [ -n "$refused" ] || continue
    if [ -z "$(ls "$LINKS/$name")" ]; then
        echo "no version of $name in $MODELS can run on this CPU: $refused; export one with --compute=float32 or int8" >&2
        exit 1
    fi
    echo "not served on this CPU: $name: $refused" >&2
done

# Returns whether COMMAND, which takes the place of this shell, still runs: else its children have another parent.
server=$$
is_running() {
    read -r _ _ _ parent _ </proc/self/stat && [ "$parent" = $server ]
}

while sleep "${LINK_SECONDS:-5}" && is_running; do
    for name in $MODEL_NAME; do
        link_model "$name"
        [ -z "$refused" ] || echo "not served on this CPU: $name: $refused" >&2
    done
done &

# Prints how many cores this process may use, by affinity and quotas of control groups: rounded down, at least 1.
cores() {
    count=$(nproc)
    while IFS=: read -r _ controllers path; do
        case ,$controllers, in ,, | *,cpu,*) ;; *) continue ;; esac
        # Some kernels say cpuacct,cpu where the folder is cpu,cpuacct; a link cpu leads to it.
        for top in "$root/sys/fs/cgroup/$controllers" "$root/sys/fs/cgroup/${controllers:+cpu}"; do
            # In a container the files of its own group are often at the top.
            folder=${top%/}${path%/}
            while :; do
                quota=""
                if [ -r "$folder/cpu.max" ]; then
                    read -r quota period <"$folder/cpu.max"
                elif [ -r "$folder/cpu.cfs_quota_us" ]; then
                    read -r quota <"$folder/cpu.cfs_quota_us"
                    read -r period <"$folder/cpu.cfs_period_us"
                fi
                case $quota in
                "" | *[!0-9]*) ;;
                *) [ $((quota / period)) -ge "$count" ] || count=$((quota / period)) ;;
                esac
                [ "$folder" != "${top%/}" ] || break
                folder=${folder%/*}
            done
        done
    done <"$root/proc/self/cgroup"
    [ "$count" -ge 1 ] || count=1
    echo "$count"
}

# Of two flags of one name the server takes the last.
case ${1##*/} in
tensorflow_model_server | tf_serving_entrypoint.sh)
    command=$1 threads=$(cores)
    shift
    set -- "$command" "--tensorflow_intra_op_parallelism=$threads" "--tensorflow_inter_op_parallelism=$threads" "$@"
    ;;
esac

# Where the start script of the tensorflow/serving image looks for the model.
export MODEL_BASE_PATH="$LINKS"
exec "$@"
