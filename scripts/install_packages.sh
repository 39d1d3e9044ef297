#!/usr/bin/env bash
# Installs the missing system packages of scripts/packages.txt:
#
#   scripts/install_packages.sh KIND...     KIND: required, optional, tools, peers, documentation
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

list=$root/scripts/packages.txt
kinds=" $* "

if ! have dpkg-query || ! have apt-get; then
  say "note: this system has no apt-get. rondo needs the equivalents of these Debian packages:"
  list_entries "$list" | sed -n 's/^required  *\([^ ]*\).*/        \1/p'
  exit 0
fi

declare -A installed=()
while read -r name status; do
  [ "${status:0:2}" = "ii" ] && installed[$name]=1
done < <(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' 2>/dev/null)

# Sets `missing` to the entries of one kind without an installed alternative.
find_missing() {
  missing=()
  local kind entry alternative
  while read -r kind entry _; do
    [ "$kind" = "$1" ] || continue
    for alternative in ${entry//|/ }; do
      [ -n "${installed[$alternative]:-}" ] && continue 2
    done
    missing+=("$entry")
  done < <(list_entries "$list")
}

# Prints the first alternative that this system offers, or nothing.
on_offer() {
  local alternative
  for alternative in ${1//|/ }; do
    if [[ $(apt-cache policy "$alternative" 2>/dev/null) =~ Candidate:\ [^\(] ]]; then
      printf '%s' "$alternative"
      return
    fi
  done
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    have sudo || return 100
    sudo "$@"
  fi
}

# Waits for another package manager instead of failing; never prompts.
apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }

# These packages start their services, now and at each boot. Tests start the programs themselves, so the services are
# masked during the installation, and disabled after it. Installed packages are not changed.
declare -A services=([openssh-server]="ssh.service ssh.socket" [munge]=munge.service [slurmctld]=slurmctld.service
  [slurmd]=slurmd.service)
masked=()
mask_services() {
  have systemctl || return 0
  local package unit
  for package in "${!services[@]}"; do
    [ -z "${installed[$package]:-}" ] || continue
    for unit in ${services[$package]}; do
      [ "$(systemctl is-enabled "$unit" 2>/dev/null)" != masked ] || continue
      as_root systemctl --quiet mask "$unit" 2>/dev/null && masked+=("$unit")
    done
  done
  return 0
}

disable_masked_services() {
  [ "${#masked[@]}" -gt 0 ] || return 0
  as_root systemctl --quiet unmask "${masked[@]}" || true
  local unit
  for unit in "${masked[@]}"; do
    as_root systemctl --quiet disable "$unit" 2>/dev/null || true  # it does not exist if its package was refused
  done
  say "note: services of these packages are neither started nor enabled: ${masked[*]}"
  masked=()
}
trap disable_masked_services EXIT

# Fetches apt's package lists at most once per run, and only before an installation.
lists_fetched=
fetch_lists() {
  [ -n "$lists_fetched" ] && return
  lists_fetched=1
  say "fetching the package lists"
  apt update >/dev/null || say "note: the package lists could not be updated; using the existing ones"
}

find_missing required
if [[ $kinds == *" required "* && ${#missing[@]} -gt 0 ]]; then
  fetch_lists
  names=()
  for entry in "${missing[@]}"; do
    name=$(on_offer "$entry")
    names+=("${name:-${entry%%|*}}")
  done
  say "installing ${names[*]}"
  apt install -y --no-install-recommends "${names[@]}" || fail \
    "these system packages are missing and could not be installed: ${names[*]}" \
    "Get them with:  sudo apt-get update && sudo apt-get install ${names[*]}" \
    "(this needs root or sudo, and network or a package mirror; then run the same make command again)"
fi

# Prints a hash of the missing packages of a kind, the list and the system.
missing_key() { printf '%s\n' "$@" | cat - "$list" /etc/os-release 2>/dev/null | sha256sum; }

# Remembers refused optional packages, so that later runs do not try again.
for kind in optional tools peers documentation; do
  [[ $kinds == *" $kind "* ]] || continue
  find_missing "$kind"
  [ "${#missing[@]}" -gt 0 ] || continue
  stamp=$root/.cache/setup/$kind-packages
  wanted=1
  case $kind in optional | tools) wanted= ;; esac
  if [ -z "$wanted" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$(missing_key "${missing[@]}")" ]; then
    continue
  fi
  fetch_lists
  refused=()
  names=()
  entries=()
  for entry in "${missing[@]}"; do
    if name=$(on_offer "$entry") && [ -n "$name" ]; then
      names+=("$name")
      entries+=("$entry")
    else
      refused+=("$entry")
    fi
  done
  [ "$kind" != peers ] || mask_services
  # Installs all at once, which is faster; if that fails, one by one, so that one failure does not block the others.
  if [ "${#names[@]}" -gt 0 ] && say "installing ${names[*]}" && ! apt install -y --no-install-recommends "${names[@]}"; then
    for at in "${!names[@]}"; do
      apt install -y --no-install-recommends "${names[at]}" || refused+=("${entries[at]}")
    done
  fi
  disable_masked_services
  mkdir -p "$(dirname "$stamp")"
  missing_key "${refused[@]}" >"$stamp"
  if [ "${#refused[@]}" -gt 0 ]; then
    say "note: not available here: ${refused[*]}; scripts/packages.txt describes their purpose"
    say "      To try by hand:  sudo apt-get install ${refused[*]%%|*}"
    [ -z "$wanted" ] || exit 1
  fi
done
