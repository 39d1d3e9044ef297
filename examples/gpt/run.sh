#!/usr/bin/env bash
# GPT from scratch: tokenizes texts to shards, pre-trains a GPT on the shards with two processes, and evaluates it.
#   examples/gpt/run.sh FOLDER [RONDO [TOKENIZER]]
# FOLDER: for the texts, the tokens and the run; RONDO: the program, default rondo; TOKENIZER: a tokenizer.json of byte
# pairs; without it tokens are bytes.
set -euo pipefail
tokenizer=()
if [[ $# -gt 2 ]]; then tokenizer=(--tokenizer "$(realpath "$3")"); fi
mkdir -p "$1"
cd "$1"
rondo=${2:-rondo}

# 400 short stories, one JSON line each.
awk 'BEGIN {
  split("cat dog bird fox", who); split("river garden house hill", where); split("slept sang played waited", what)
  srand(1)
  for (i = 0; i < 400; ++i) {
    story = ""
    for (j = 0; j < 3; ++j)
      story = story "the " who[1 + int(4 * rand())] " " what[1 + int(4 * rand())] " by the " where[1 + int(4 * rand())] ". "
    print "{\"text\": \"" story "\"}" > "stories.jsonl"
  }
}'

"$rondo" tokenize stories.jsonl -o tokens --documents jsonl --shard-tokens 10000 "${tokenizer[@]}"
"$rondo" train --model gpt --data tokens --seq-len 32 --layers 2 --heads 2 --width 32 --strategy zero2 --nproc-per-node 2 \
  --batch-size 8 --epochs 6 --lr 1e-2 --lr-schedule cosine --warmup-steps 20 --max-grad-norm 1 --seed 1 --progress off --run-dir pretraining
"$rondo" evaluate pretraining
