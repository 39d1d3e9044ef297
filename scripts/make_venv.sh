#!/usr/bin/env bash
# Makes .venv and installs what scripts/requirements*.txt pin. torch is left out when LIBTORCH is set.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=$root/.venv
stamp=$venv/rondo-setup.stamp
requirements=("$root/scripts/requirements.txt")
if [ -z "${LIBTORCH:-}" ]; then
  requirements+=("$root/scripts/requirements-torch.txt")
fi

# A finished set-up with torch also serves a build with LIBTORCH.
key() { cat "$@" | sha256sum | cut -d' ' -f1; }
for done_key in "$(key "${requirements[@]}")" "$(key "$root"/scripts/requirements.txt "$root"/scripts/requirements-torch.txt)"; do
  if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$done_key" ]; then
    exit 0
  fi
done

have python3 || fail "python3 (3.10 or newer) is missing" \
  "Get it with:  sudo apt-get update && sudo apt-get install python3 python3-venv"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail \
  "python3 is $(python3 -V 2>&1 | cut -d' ' -f2); rondo's tools need 3.10 or newer"

if [ ! -x "$venv/bin/python" ]; then
  say "making .venv"
  python3 -m venv "$venv" || fail "python3 could not make a virtual environment in $venv" \
    "Get what it needs with:  sudo apt-get update && sudo apt-get install python3-venv"
fi

say "installing Python packages into .venv (torch is large: this can take some minutes)"
arguments=()
for file in "${requirements[@]}"; do arguments+=(-r "$file"); done
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet "${arguments[@]}" || fail \
  "these Python packages are missing and could not be installed: $(list_entries "${requirements[0]}" | tr '\n' ' ')$(
    [ "${#requirements[@]}" -gt 1 ] && list_entries "${requirements[1]}" | tr '\n' ' ')" \
  "Get them with:  $venv/bin/python -m pip install ${arguments[*]}" \
  "(this needs network or a package mirror that pip is configured for; then run the same make command again)" \
  "With a libtorch already on this machine:  LIBTORCH=/path/to/libtorch make setup   needs no torch from pip."
key "${requirements[@]}" >"$stamp"
