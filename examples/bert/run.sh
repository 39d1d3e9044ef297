#!/usr/bin/env bash
# BERT from scratch: pre-training on plain text, then classification of sentences from its weights with early stopping.
#   examples/bert/run.sh FOLDER [RONDO]        FOLDER: for the texts and the runs; RONDO: the program, default rondo
set -euo pipefail
mkdir -p "$1"
cd "$1"
rondo=${2:-rondo}
small=(--seq-len 16 --layers 2 --heads 2 --width 32 --model-config '{"intermediate": 64}')

# Sentences about a film, a book or a meal; a label says whether it was liked, and one in ten labels is wrong.
awk 'BEGIN {
  split("film book play meal song", things); split("good great fine lovely", liked); split("bad dull poor awful", disliked)
  srand(1)
  for (i = 0; i < 600; ++i) {
    thing = things[1 + int(5 * rand())]; likes = rand() < 0.5; k = 1 + int(4 * rand()); j = 1 + int(4 * rand())
    a = likes ? liked[k] : disliked[k]; b = likes ? liked[j] : disliked[j]
    sentence = "the " thing " was " a " and " b " ."
    print sentence > "corpus.txt"
    if (i < 240) print ((rand() < 0.1 ? !likes : likes) ? "liked" : "disliked") "\t" sentence > "reviews.tsv"
  }
}'
{ printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]'; tr ' ' '\n' < corpus.txt | sort -u; } > vocab.txt

"$rondo" train --model bert --task mlm --data corpus.txt --vocabulary vocab.txt "${small[@]}" --epochs 30 --lr 3e-3 \
  --nproc-per-node 2 --progress off --run-dir pretraining
"$rondo" export pretraining -o pretrained --format huggingface
"$rondo" train --model bert --data reviews.tsv --from-pretrained pretrained --seq-len 16 --validation-fraction 0.25 --epochs 40 --batch-size 8 \
  --early-stopping-patience 5 --set restore-best=true --nproc-per-node 2 --lr 3e-3 --progress off --run-dir classification
"$rondo" evaluate classification
