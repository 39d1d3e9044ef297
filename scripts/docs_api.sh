#!/usr/bin/env bash
# Writes the reference of the public headers as HTML to build/docs-api:  scripts/docs_api.sh
#
# Fails if a public function, type, constant or field has no comment, or if a comment names something that does not
# exist. Public headers are those that rondo/*.h and rondo/extend/*.h include. Installs Doxygen if it is missing.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

have doxygen || "$root/scripts/install_packages.sh" documentation
have doxygen || fail "doxygen is missing" "Get it with:  sudo apt-get update && sudo apt-get install doxygen"
cd "$root"
out=build/docs-api
mkdir -p "$out"
headers=$(sed -n 's/^#include "\(rondo\/.*\/.*\)"/\1/p' rondo/*.h rondo/extend/*.h | sort -u)
# Doxygen only requires comments for a namespace's functions, enumerations and constants if the namespace itself has
# one.
# shellcheck disable=SC2086  # a list of words
sed -n 's/^namespace \(rondo.*\) {/\1/p' $headers | sort -u | while read -r name; do
  printf '/** @namespace %s\n * What a program may rely on. */\n' "$name"
done >"$out/namespaces.h"
{
  cat docs/Doxyfile
  # shellcheck disable=SC2086  # a list of words
  printf 'INPUT = %s/namespaces.h %s\n' "$out" "$(echo $headers)"
  printf 'PROJECT_NUMBER = %s\nOUTPUT_DIRECTORY = %s\n' "$(sed -n 's/^#define RONDO_VERSION "\(.*\)"/\1/p' rondo/base/version.h)" "$out"
} >"$out/Doxyfile"
doxygen "$out/Doxyfile" || fail "public headers lack documentation (above)"
say "documentation of $(echo "$headers" | wc -w) headers is in $out/html/index.html"
