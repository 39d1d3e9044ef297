#!/usr/bin/env bash
# Cross-compiles rondo for aarch64:  scripts/cross.sh [tests] [layers] [syntax]     (default: all)
#
# tests    builds the layers without libtorch and runs their tests under qemu-user. Names the tests that are left out, because
#          the emulator lacks something, with the reason (scripts/emulated_tests.txt).
# layers   builds the layers on libtorch.
# syntax   checks all layers and programs, with libtorch's headers for aarch64, without compiling them.
#
# The libraries are those of Debian, extracted into build/aarch64/sysroot, and the wheels of PyPI.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$root/build/aarch64
sysroot=$build/sysroot
wheels=$build/site-packages
emulator=qemu-aarch64-static
packages=(libspdlog-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libxxhash-dev libzmq3-dev libgtest-dev libjpeg-dev
  libpng-dev libgloo-dev libstdc++6)
for tool in aarch64-linux-gnu-g++ "$emulator" mmdebstrap; do
  have "$tool" || fail "$tool is missing" "Get it with:  sudo apt-get install g++-aarch64-linux-gnu qemu-user-static mmdebstrap"
done

# Extracts the libraries of this Debian for aarch64, once.
make_sysroot() {
  [ ! -e "$sysroot/complete" ] || return 0
  rm -rf "$sysroot"
  mkdir -p "$build"
  say "extracting Debian's libraries for aarch64"
  # shellcheck source=/dev/null
  mmdebstrap --quiet --variant=extract --architectures=arm64 --include="${packages[*]}" \
    "$(. /etc/os-release && printf %s "$VERSION_CODENAME")" "$sysroot"
  # The emulator looks for every file there first: devices and temporary files are those of this machine.
  find "$sysroot" -mindepth 1 -maxdepth 1 ! -name lib ! -name usr -exec rm -rf {} +
  touch "$sysroot/complete"
}

# Installs the wheels of libtorch and of the solver for aarch64, once.
install_wheels() {
  [ ! -e "$wheels/complete" ] || return 0
  rm -rf "$wheels"
  say "installing libtorch's wheel for aarch64 (large: this can take some minutes)"
  "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --target "$wheels" \
    -r "$root/scripts/requirements-torch.txt" highsbox
  # The wheel's CUDA build needs libraries of other wheels.
  rm -f "$wheels"/torch/lib/libtorch_cuda*.so
  touch "$wheels/complete"
}

configure() {
  make_sysroot
  install_wheels
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE="$root/cmake/Aarch64Toolchain.cmake" \
    -DLIBTORCH="$wheels/torch" -DHIGHS_DIR="$wheels/highsbox/highs_dist" -DRONDO_MPI=OFF -DRONDO_BUILD_PYTHON=OFF \
    -DRONDO_CHART_LIBRARY=/usr/share/javascript/chart.js/chart.min.js >/dev/null
}

tests() {
  local layer status=0 filter name reason
  local -A left_out=()
  "$root/scripts/build.py" "$build" core_tests
  while read -r name reason; do
    left_out[${name%%.*}]+=":${name#*.}"
    say "left out: $name  ($reason)"
  done < <(list_entries "$root/scripts/emulated_tests.txt")
  for program in "$build"/bin/*_test; do
    layer=$(basename "$program" _test)
    filter=*${left_out[$layer]:+-${left_out[$layer]#:}}
    say "$layer under $emulator"
    (cd "$build" && $emulator -L "$sysroot" "$program" --gtest_brief=1 --gtest_filter="$filter") || status=1
  done
  return "$status"
}

# The highest layer is built after all others.
layers() { "$root/scripts/build.py" "$build" rondo_profile; }

syntax() { BUILD=$build COMPILER=aarch64-linux-gnu-g++ "$root/scripts/syntax.sh"; }

[ "$#" -gt 0 ] || set -- tests layers syntax
for step in "$@"; do
  [[ $step =~ ^(tests|layers|syntax)$ ]] || fail "unknown argument '$step'" "Allowed: tests, layers, syntax"
done
configure
for step in "$@"; do "$step"; done
