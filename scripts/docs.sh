#!/usr/bin/env bash
# Builds the documentation site in build/docs:  scripts/docs.sh [--without-api] | --serve
#
# Fails, and names the file and line, if a link is dead, a page is in no table of contents, docs/cli differs from the
# programs, docs/README.md from docs/index.md, or a public declaration has no comment. RONDO_BIN is the folder of the built programs (build/release/bin).
# --without-api leaves out the reference of the C++ headers, which takes most of the time and needs Doxygen.
# --serve shows the built site in a browser of this machine.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$root"
site=build/docs
pages=build/docs-source
venv=${RONDO_DOCS_VENV:-build/docs-venv}
requirements=scripts/requirements-docs.txt
api=1
case "${1:-}" in
  "") ;;
  --without-api) api= ;;
  --serve)
    [ -f "$site/index.html" ] || fail "there is no $site" "Build it with:  make docs"
    exec python3 - "$site" <<'SERVE'
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    print(f"documentation: http://127.0.0.1:{server.server_port}/  (Ctrl-C ends)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
SERVE
    ;;
  *) fail "unknown argument '$1'" "Allowed: --without-api, --serve" ;;
esac

install_sphinx() {
  cmp -s "$requirements" "$venv/requirements.txt" && return
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail \
    "python3 is $(python3 -V 2>&1 | cut -d' ' -f2); Sphinx needs 3.11 or newer"
  say "installing Sphinx into $venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --disable-pip-version-check --quiet -r "$requirements" || fail \
    "Sphinx could not be installed" "Get it with:  $venv/bin/python -m pip install -r $requirements"
  cp "$requirements" "$venv/requirements.txt"
}

# Copies Markdown files and images with their paths, except the template of new projects.
copy_pages() {
  rm -rf "$pages"
  mkdir -p "$pages"
  find . \( -path ./build -o -path ./.venv -o -path ./.git -o -path ./.cache -o -path ./runs -o -path ./.github \
    -o -path ./apps/new/template \) -prune -o \( -name '*.md' -o -name '*.svg' -o -name '*.png' \) \
    -print0 | xargs -0 cp --parents -t "$pages"
}

status=0
[ -n "${RONDO_DOCS_VENV:-}" ] || install_sphinx
copy_pages
rondo=${RONDO_BIN:-build/release/bin}/rondo
if [ -x "$rondo" ]; then
  "$venv/bin/python" scripts/cli_page.py "$rondo" --check || status=1
else
  say "note: docs/cli was not compared with the programs, because $rondo does not exist"
fi
if [ -f docs/README.md ]; then
  "$venv/bin/python" scripts/docs_index.py --check || status=1
fi
if [ -n "$api" ]; then
  scripts/docs_api.sh || status=1
  "$venv/bin/python" scripts/api_pages.py build/docs-api/xml "$pages/reference/cpp" || status=1
fi
rm -rf "$site"
# Paths of messages are those of the repository.
"$venv/bin/python" -m sphinx -c docs -b html -d build/docs-doctrees -q -E -W "$pages" "$site" 2>&1 |
  sed "s|$root/$pages/||; s|^$root/||" >&2 || status=1
rm -rf build/docs-doctrees
[ "$status" -eq 0 ] || fail "the documentation has errors (above)"
say "documentation is in $site/index.html"
