#!/usr/bin/env bash
# Builds the image of packaging/Containerfile without a daemon, on Debian's Python, and trains in it on two ranks as its user:
#
#   scripts/try_container.sh [ARGUMENTS OF buildah build]
#
# Takes the wheel of build/package (make package KINDS=wheel). PIP_OPTIONS are pip's inside, for example for an index of builds
# for CPUs; --volume=FOLDER:FOLDER:ro shows it local packages. Removes the images at the end. Needs root, buildah and mmdebstrap.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

require "buildah mmdebstrap" buildah mmdebstrap
wheels=("$root"/build/package/rondo-*-cp311-*.whl)
[ -e "${wheels[0]}" ] || fail "there is no wheel in build/package" "Make it with:  make package KINDS=wheel"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
images() { buildah --root "$work/images" --runroot "$work/run" --storage-driver vfs "$@"; }

say "extracting Debian with its Python"
mmdebstrap --quiet --variant=minbase --include=python3,python3-pip,ca-certificates bookworm "$work/base.tar"
container=$(images from scratch)
images add --quiet "$container" "$work/base.tar" / >/dev/null
images commit --quiet "$container" base >/dev/null
images rm "$container" >/dev/null

mkdir -p "$work/context/build/package"
cp "${wheels[@]}" "$work/context/build/package"
images build --isolation chroot --pull-never --build-arg BASE=localhost/base --build-arg PIP_OPTIONS="--break-system-packages ${PIP_OPTIONS:-}" \
  "$@" --tag rondo --file "$root/packaging/Containerfile" "$work/context"

container=$(images from --pull-never localhost/rondo)
# shellcheck disable=SC2016  # the container's shell expands it
images run --isolation chroot "$container" -- sh -ec '
  [ "$(id -u)" != 0 ]
  rondo --version
  yes "to be or not to be" | head -2000 > text.txt
  rondo train --data text.txt --layers 1 --steps 3 --nproc-per-node 2 --run-dir run --progress off
  python3 -W ignore -c "import rondo_torch"'
say "the image's user trained in it"
