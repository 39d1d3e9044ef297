#!/bin/sh
# Runs gpu-check from a bundle:  LIBTORCH=/path/of/venv gpu-check.sh [--only PART] [--json FILE]
case $0 in
  */*) folder=${0%/*} ;;
  *) folder=. ;;
esac
folder=$(cd "$folder" && pwd) || exit 1
python=python3
if [ -n "${LIBTORCH:-}" ] && [ -x "$LIBTORCH/bin/python3" ]; then
  python=$LIBTORCH/bin/python3
fi
exec "$python" "$folder/check" "$@"
