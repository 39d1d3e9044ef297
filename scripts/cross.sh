#!/usr/bin/env bash
# Cross-compiles rondo for aarch64:  scripts/cross.sh [tests] [programs] [train] [syntax]     (default: all)
#
# tests     builds the layers without libtorch and runs their tests under qemu-user. Names the tests that are left out, because
#           the emulator lacks something, with the reason (scripts/emulated_tests.txt).
# programs  builds all programs and examples, with libtorch, and `rondo --version` runs under qemu-user.
# train     trains a small GPT under qemu-user: two ranks must end with the loss of one process, under DDP and under ZeRO 3.
# syntax    checks all layers and programs, with libtorch's headers for aarch64, without compiling them.
#
# The libraries are those of Debian, extracted into build/aarch64/sysroot, and the wheels of PyPI.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$root/build/aarch64
sysroot=$build/sysroot
wheels=$build/site-packages
emulator=qemu-aarch64-static
packages=(libspdlog-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libxxhash-dev libzmq3-dev libgtest-dev libjpeg-dev
  libpng-dev libgloo-dev libstdc++6)
require "g++-aarch64-linux-gnu qemu-user-static mmdebstrap" aarch64-linux-gnu-g++ "$emulator" mmdebstrap

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
  describe_processors
  touch "$sysroot/complete"
}

# libtorch reads which processor it runs on from /proc and fails on the lines of an x86-64. The emulator takes these instead.
describe_processors() {
  local processor
  mkdir -p "$sysroot/proc"
  for processor in 0 1; do
    printf '%s\t: %s\n' processor "$processor" Features "fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm" \
      "CPU implementer" 0x41 "CPU architecture" 8 "CPU variant" 0x3 "CPU part" 0xd0c "CPU revision" 1
    echo
  done >"$sysroot/proc/cpuinfo"
}

# Installs the wheels of libtorch and of the solver for aarch64, once.
install_wheels() {
  [ ! -e "$wheels/complete" ] || return 0
  rm -rf "$wheels"
  say "installing libtorch's wheel for aarch64 (large: this can take some minutes)"
  # PyPI's libtorch for aarch64 is the build with CUDA, whose CPU library needs two libraries of CUDA too.
  "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_25_aarch64 --platform manylinux2014_aarch64 --target "$wheels" \
    -r "$root/scripts/requirements-torch.txt" highsbox 'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-cupti>=13,<14'
  rm -f "$wheels"/torch/lib/libtorch_cuda*.so
  ln -s ../../nvidia/cu13/lib/libcudart.so.13 ../../nvidia/cu13/lib/libcupti.so.13 "$wheels/torch/lib"
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

programs() {
  "$root/scripts/build.py" "$build" apps/all examples/all
  emulate rondo --version
}

# Runs a program of the build under the emulator.
emulate() {
  local program=$1
  shift
  $emulator -L "$sysroot" "$build/bin/$program" "$@"
}

# Prints a port of the loopback interface that nobody uses.
free_port() { "$root/.venv/bin/python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Prints the losses in the last line of a run's output. Fails if the run did not end well.
losses() { sed -n 's/^finished after step .*, \(loss .*\), run directory .*/\1/p' "$1" | grep . || (cat "$1" >&2 && return 1); }

train() {
  local runs strategy rank port want got
  "$root/scripts/build.py" "$build" rondo-train-worker
  runs=$(mktemp -d)
  local flags=(--data "$root/README.md" --model gpt-tiny --seq-len 32 --steps 6 --seed 1)
  emulate rondo-train-worker "${flags[@]}" --batch-size 4 --run-dir "$runs/one" >"$runs/output" 2>&1 || true
  want=$(losses "$runs/output")
  say "one process under $emulator: $want"
  for strategy in ddp zero3; do
    port=$(free_port)
    for rank in 0 1; do
      RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        emulate rondo-train-worker "${flags[@]}" --batch-size 2 --strategy "$strategy" --run-dir "$runs/$strategy" \
        >"$runs/output.$rank" 2>&1 &
    done
    wait
    got=$(losses "$runs/output.0")
    say "two ranks under $emulator, $strategy: $got"
    [ "$got" = "$want" ] || fail "$strategy on two ranks ends otherwise than one process: $got; $want"
  done
  rm -rf "$runs"
}

syntax() { BUILD=$build COMPILER=aarch64-linux-gnu-g++ "$root/scripts/syntax.sh"; }

[ "$#" -gt 0 ] || set -- tests programs train syntax
for step in "$@"; do
  [[ $step =~ ^(tests|programs|train|syntax)$ ]] || fail "unknown argument '$step'" "Allowed: tests, programs, train, syntax"
done
configure
for step in "$@"; do "$step"; done
