#!/bin/bash
# Makes small embedders of all-MiniLM-L6-v2, trains two on pairs, and judges all beside the large one.
#
#     bash recipes/small_embedder/run.sh DATA SETS OUT [MODEL]
#
# DATA: see data.py. SETS: folders that judge, as run_evaluation --suite=embeddings reads them; held-out ones are named
# in data.py. MODEL: all-MiniLM-L6-v2, by default from the hub. A run that was interrupted goes on by the same command.
set -euo pipefail
data=$1 sets=$2 out=$3 model=${4:-sentence-transformers/all-MiniLM-L6-v2}
policy=mixed_bfloat16  # on a CPU without AVX-512 BF16: float32
mkdir -p "$out"
[[ -e $out/data/seen.json ]] || python recipes/small_embedder/data.py "$data" "$out/data"

compress() {  # NAME FLAGS...
    python -m albert_tf.compress --model="$model" --output_dir="$out/$1" --text="$out/data/text/*.txt" \
        --nosplit_sentences --vocab_from=corpus --max_seq_length=96 --dtype_policy=$policy "${@:2}"
}
# 7.0 million parameters in three steps and in six; 3.4 million in three.
compress three --layers=3 --plan=1x2+1 --embedding_size=112 --vocab_size=27841 --lora_rank=4 --num_train_steps=5800 \
    --learning_rate=6e-4
compress six --plan=1x3+1x3 --embedding_size=104 --vocab_size=27841 --lora_rank=6 --num_train_steps=4800 \
    --learning_rate=6e-4
compress tiny --layers=3 --plan=1x3 --embedding_size=80 --lora_rank=8 --vocab_size=16000 --num_train_steps=1500 \
    --learning_rate=6e-4

# Pairs, with the large model's vectors as targets: distances between unrelated texts stay the large model's.
train_on_pairs() {  # NAME STEPS
    python -m albert_tf.run_finetuning --task=pairs --data_file="$out/data/pairs.csv" --init_from="$out/$1" \
        --teacher="$model" --output_dir="$out/$1_pairs" --max_seq_length=256 --train_batch_size=32 \
        --num_train_steps=$2 --learning_rate=2e-4 --dev_fraction=0.01 --dtype_policy=$policy
}
train_on_pairs three 600
train_on_pairs six 400

for judged in "$model" "$out"/{three,three_pairs,six,six_pairs,tiny}; do
    python -m albert_tf.run_evaluation --model="$judged" --suite=embeddings --data_dir="$sets" \
        --output_dir="$out/quality/$(basename "$judged")"
done
