#!/usr/bin/env bash
# From scratch to a trained model in a few minutes:  scripts/quickstart.sh PROGRAMS [STEPS [VALIDATION_BATCHES]]
#
# Trains a small byte-level GPT on rondo's own sources on two processes, generates some text, and writes the report of
# the run.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

programs=$1
steps=${2:-400}
batches=${3:-40}
run=$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)

# Prints a command as a user would type it, and runs it.
show_and_run() {
  local word words=
  for word in "${@//$root\//}"; do
    [[ $word == *" "* ]] && word="'$word'"
    words+=" $word"
  done
  say ""
  say "\$ rondo$words"
  "$programs/rondo" "$@"
}

cd "$root"
show_and_run train --model gpt-tiny --data rondo --extensions .h,.cpp --nproc-per-node 2 --steps "$steps" --batch-size 16 \
  --lr 3e-3 --lr-schedule cosine --warmup-steps 20 --eval-every "$((steps / 4))" --eval-batches "$batches" --run-dir "$run"
show_and_run train --sample "// Each" --length 300 --run-dir "$run"
show_and_run report "$run"

say ""
say "Done. Open ${run#"$root"/}/report.html in a browser; README.md and docs/cli.md describe the other commands."
