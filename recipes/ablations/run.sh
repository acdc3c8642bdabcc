#!/bin/bash
# Trains the rows of ALBERT's tables (Lan et al. 2020): embedding size (Table 3), sharing (4), pair task (5), dropout (8).
#
#     bash recipes/ablations/run.sh CORPUS OUT [SEEDS]
#
# CORPUS: globs of text files. model.json is the model of all rows, and rows/NAME.json what one row changes. The pair
# tasks are rows of examples. A run that was interrupted goes on by the same command. docs/results/ablations.md has results.
set -euo pipefail
corpus=$1 out=$2 seeds=${3:-3}
here=$(dirname "$0")
mkdir -p "$out"
[[ -e $out/spm.model ]] || python -m tfrecords.train_tokenizer --input="$corpus" --output_prefix="$out/spm" \
    --vocab_size=1000 --nohard_vocab_limit

train() {  # NAME TASK ROW
    [[ -e $out/examples/$2/manifest.json ]] || python -m tfrecords.create_pretraining_data --input="$corpus" \
        --settings="$here/examples.json" --pair_task="$2" --tokenizer="$out/spm.model" --output_dir="$out/examples/$2"
    python -c 'import json, sys; print(json.dumps({k: v for path in sys.argv[1:] for k, v in json.load(open(path)).items()}))' \
        "$here/model.json" "$here/rows/$3.json" > "$out/$1.json"
    for seed in $(seq "$seeds"); do
        [[ -e $out/$1-$seed.json ]] && continue
        python -m albert_tf.run_pretraining --settings="$here/pretraining.json" --config="$out/$1.json" --seed="$seed" \
            --train_data="$out/examples/$2" --eval_data="$out/examples/$2" --output_dir="$out/runs/$1-$seed"
        python -m albert_tf.run_evaluation --model="$out/runs/$1-$seed" --train_data="$out/examples/$2" \
            --eval_data="$out/examples/$2" --output="$out/$1-$seed.json"
    done
}

for row in "$here"/rows/*.json; do
    name=$(basename "$row" .json)
    train "$name" sop "$name"
done
for task in nsp none; do
    train "$task" "$task" all_middle
done
