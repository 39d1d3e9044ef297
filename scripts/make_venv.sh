#!/usr/bin/env bash
# Creates .venv and installs the versions of scripts/requirements*.txt:  scripts/make_venv.sh [--programs]
#
# torch is skipped if LIBTORCH is set. With --programs installs only the packages for building and running the programs.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=$root/.venv
stamp=$venv/rondo-setup.stamp
requirements=("$root/scripts/requirements-programs.txt")
[ "${1:-}" = --programs ] || requirements+=("$root/scripts/requirements.txt")
[ -n "${LIBTORCH:-}" ] || requirements+=("$root/scripts/requirements-torch.txt")

# The stamp has a line for each installed list, with the hash of the list.
key() { printf '%s %s' "$(basename "$1")" "$(sha256sum <"$1" | cut -d' ' -f1)"; }
finished=1
for file in "${requirements[@]}"; do
  grep -qsxF "$(key "$file")" "$stamp" || finished=
done
[ -n "$finished" ] && [ -x "$venv/bin/python" ] && exit 0

have python3 || fail "python3 (3.10 or newer) is missing" \
  "Get it with:  sudo apt-get update && sudo apt-get install python3 python3-venv"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail \
  "python3 is $(python3 -V 2>&1 | cut -d' ' -f2); rondo's tools need 3.10 or newer"

if [ ! -x "$venv/bin/python" ]; then
  say "creating .venv"
  python3 -m venv "$venv" || fail "python3 could not make a virtual environment in $venv" \
    "Get what it needs with:  sudo apt-get update && sudo apt-get install python3-venv"
fi

say "installing Python packages into .venv (torch is large: this can take some minutes)"
arguments=()
for file in "${requirements[@]}"; do arguments+=(-r "$file"); done
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet "${arguments[@]}" || fail \
  "these Python packages are missing and could not be installed: $(
    for file in "${requirements[@]}"; do list_entries "$file" | tr '\n' ' '; done)" \
  "Get them with:  $venv/bin/python -m pip install ${arguments[*]}" \
  "(this needs network or a package mirror that pip is configured for; then run the same make command again)" \
  "With a libtorch already on this machine:  LIBTORCH=/path/to/libtorch make setup   needs no torch from pip."
before=$(cat "$stamp" 2>/dev/null || true)
{
  for file in "${requirements[@]}"; do
    key "$file"
    echo
  done
  while read -r name content; do
    [[ -z $name || " ${requirements[*]##*/} " == *" $name "* ]] || echo "$name $content"
  done <<<"$before"
} >"$stamp"
