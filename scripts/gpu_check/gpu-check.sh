#!/bin/sh
# Runs gpu-check from a bundle:  LIBTORCH=/path/of/venv gpu-check.sh [--only PART] [--json FILE]
folder=$(cd "$(dirname "$0")" && pwd) || exit 1
python=python3
if [ -n "${LIBTORCH:-}" ] && [ -x "$LIBTORCH/bin/python3" ]; then
  python=$LIBTORCH/bin/python3
fi
exec "$python" "$folder/check" "$@"
