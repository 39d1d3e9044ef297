#!/usr/bin/env bash
# Everything that continuous integration has no time for, one after the other:  scripts/nightly.sh [STEP...]
#
# A step that fails does not stop the others. Output goes to build/nightly/STEP.log; at the end stands a line for each step, and
# the exit code says whether all went well. Steps (all without arguments):
#
#   tidy       clang-tidy on every file                 clang    clang's full build, tests and examples too
#   compilers  the front ends of g++ 11, clang 14 and clang 16 on all layers and programs; COMPILERS="g++-13" for others
#   aarch64    cross-compiles for aarch64: tests without libtorch and training on two ranks run under qemu
#   asan tsan  the sanitizers on all their tests        equality faults chaos survive mutate    those make commands
#   sim        on the simulated accelerator: every cell of docs/support.md on 1, 2 and 4 ranks, and what gpu-check compares
#   bundle     make gpu-bundle, tried where there is nothing else; needs GPU_LIBTORCH=/path/of/venv with torch's CUDA build
#   package    wheel, archive and Debian package; wheel and Debian package in clean roots of Debian 12 and 13, refused by 11, and
#              the wheel in a container (root)
#   reproduce  packages compiled in two folders have the same bytes
#   torches    packages for the newest torch that PyPI serves, tested as those for .venv's, and backend_test, nn_test and
#              parallel_test compiled against it; TORCHES="2.11.0 2.14.1" for others; with TESTS=/path/to/pytorch/test also
#              PyTorch's own tests over the plug-in of each
#   recipes    conan create, vcpkg install and spack install, each of which builds rondo from the checkout; vcpkg and spack if on PATH
#   external   rondo compiled as a part of another project, whose programs run
#   peers      PyTorch's own tests over the plug-in; needs TESTS=/path/to/pytorch/test, of the torch in use or one near it
#   bench      every benchmark once, as small as it goes: that it runs, not what it says
#   long       tests that make test leaves out since a shorter one covers most of what they do
#   tooling    tests of scripts, recipes and the text of documents, which make test leaves out
#   docs       make docs: a dead link, a page in no table of contents or an outdated table of flags fails
#   pages      commands of the documentation run as printed, and its C++ blocks compile
#   docs_api   make docs-api: a public function, type or field without a comment fails
#   readers    MLflow, TensorBoard and OpenTelemetry's messages, installed for it, read what rondo writes
#   browser    report, plan and algorithm pages in a browser at 420 and 1280 pixels, light and dark; axe-core finds nothing
#   frameworks Accelerate, the HF Trainer, Lightning, DeepSpeed and torchtitan, installed for it, train over the plug-in
#   coverage   the share of lines that tests run
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

cd "$root"
logs=$root/build/nightly
mkdir -p "$logs"
export RONDO_BIN=$root/build/release/bin
export RONDO_UNSTEADY=fail
python=$root/.venv/bin/python

release() { scripts/configure.sh release && scripts/build.py build/release; }
tidy() { scripts/tidy.sh; }
clang() { configure_clang build/clang && scripts/build.py build/clang; }
compilers() {
  local compiler
  for compiler in ${COMPILERS:-g++-11 clang++ clang++-16}; do COMPILER=$compiler scripts/syntax.sh; done
}
aarch64() { scripts/cross.sh; }
asan() { scripts/sanitize.sh asan; }
tsan() { scripts/sanitize.sh tsan; }
equality() { release && make equality; }
faults() { release && make faults; }
chaos() { release && make chaos-short; }
survive() { release && make survive; }
mutate() { release && make mutate; }
sim() {
  release
  export RONDO_SUPPORT_DEVICE=sim RONDO_SUPPORT_RANKS=1,2,4
  "$python" tests/integration/support.py
  "$python" tests/integration/support_loops.py
  "$python" scripts/gpu_check --programs "$RONDO_BIN" --peers bench/peers --device sim --complete --only nccl --only equality --only precision --only dropout --only resume --only mirrored
}
bundle() {
  [ -n "${GPU_LIBTORCH:-}" ] || fail "the bundle needs torch's CUDA build" "Run:  make nightly GPU_LIBTORCH=/path/of/venv"
  LIBTORCH=$GPU_LIBTORCH make gpu-bundle && scripts/try_gpu_bundle.py --venv "$GPU_LIBTORCH"
}
coverage() { scripts/coverage.sh; }
long() {
  release
  "$python" -m pytest tests/integration -m "long and not alone" -n 2
  "$python" -m pytest tests/integration -m "long and alone"
}
tooling() { release && "$python" -m pytest tests/integration --ignore tests/integration/pages_test.py -m tooling -n 2; }
package() {
  make package
  "$python" scripts/try_packages.py
  if have buildah; then scripts/try_container.sh; else say "note: the container is left out, because buildah is missing"; fi
}
reproduce() { scripts/reproduce.py; }
torches() {
  local version test
  for version in ${TORCHES:-$("$python" -m pip index versions torch 2>/dev/null | sed -n 's/^torch (\(.*\))$/\1/p')}; do
    make package KINDS=wheel TORCH="$version"
    [ -z "${TESTS:-}" ] || make plugin-peers TESTS="$TESTS" TORCH="$version" JSON="$logs/peers-$version.json"
    # Its environment also has the tests of the layers that use most of libtorch.
    LIBTORCH=$root/build/torch/$version CMAKE_ARGS="-DRONDO_BUILD_PYTHON=OFF -DRONDO_NCCL=OFF" scripts/configure.sh release "build/tests-torch$version"
    scripts/build.py "build/tests-torch$version" backend_test nn_test parallel_test launched_ranks
    for test in backend_test nn_test parallel_test; do "build/tests-torch$version/bin/$test"; done
  done
}
recipes() {
  local packages
  python3 -m venv "$logs/conan"
  "$logs/conan/bin/pip" install --quiet conan
  packages=$("$python" -c 'import site; print(site.getsitepackages()[0])')
  export CONAN_HOME=$logs/conan-home
  "$logs/conan/bin/conan" profile detect --force
  "$logs/conan/bin/conan" create packaging/conan -s compiler.cppstd=20 -o "rondo/*:libtorch=$packages/torch" -o "rondo/*:highs=$packages/highsbox/highs_dist"
  if have vcpkg; then
    LIBTORCH=$packages/torch HIGHS_DIR=$packages/highsbox/highs_dist VCPKG_FORCE_SYSTEM_BINARIES=1 vcpkg install rondo \
      --overlay-ports=packaging/vcpkg --x-install-root="$logs/vcpkg"
  else
    say "note: skipping vcpkg, which is not on PATH"
  fi
  if have spack; then
    spack repo list | grep -q '^rondo ' || spack repo add packaging/spack
    spack install --fresh rondo libtorch="$packages/torch" highs="$packages/highsbox/highs_dist"
  else
    say "note: skipping Spack, which is not on PATH"
  fi
}
external() { release && RONDO_EXTERNAL=all "$python" -m pytest tests/integration/external_test.py; }
peers() {
  [ -n "${TESTS:-}" ] || fail "the plug-in's peers need PyTorch's sources" "Run:  make nightly TESTS=/path/to/pytorch/test"
  release && make plugin-peers TESTS="$TESTS"
}
docs() { release && make docs; }
pages() { release && "$python" -m pytest tests/integration/pages_test.py -m tooling -n 2; }
docs_api() { make docs-api; }
readers() {
  release
  python3 -m venv "$logs/readers"
  "$logs/readers/bin/pip" install --quiet mlflow tensorboard opentelemetry-proto pytest
  "$logs/readers/bin/python" -m pytest tests/readers
}
browser() {
  release
  # axe-core as a file: the package's own driver for another browser is not needed.
  python3 -m venv "$logs/browser"
  "$logs/browser/bin/pip" install --quiet --no-deps --target "$logs/browser/axe" axe-playwright-python==0.1.8
  RONDO_PAGES=all "$python" -m pytest tests/integration/report_test.py tests/integration/drawings_test.py
  RONDO_PAGES=all "$python" -m pytest tests/integration/plan_test.py -k page
  RONDO_AXE=$logs/browser/axe/axe_playwright_python/axe.min.js "$python" -m pytest tests/pages -s
}
frameworks() {
  release
  python3 -m venv "$logs/frameworks"
  # The torch of .venv, and what it has besides.
  "$python" -c 'import site; print(site.getsitepackages()[0])' >"$logs/frameworks-base"
  cp "$logs/frameworks-base" "$(echo "$logs"/frameworks/lib/python3.*/site-packages)/base.pth"
  "$python" -c 'import torch; print("torch==" + torch.__version__)' >"$logs/frameworks-constraints"
  "$logs/frameworks/bin/pip" install --quiet --constraint "$logs/frameworks-constraints" accelerate lightning deepspeed transformers torchtitan triton pytest
  "$logs/frameworks/bin/python" -m pytest tests/frameworks
}
bench() {
  local json
  release
  json=$(mktemp -d)
  run() { say "\$ $*"; "$@"; }
  run "$RONDO_BIN/rondo" bench checkpoint --model gpt-tiny --runs 1 --peers
  run "$RONDO_BIN/rondo" bench-dev loader --image-count 32 --runs 1 --peers
  run "$RONDO_BIN/rondo" bench-dev memory-tracking --model gpt-tiny --rounds 1 --steps 1 --warm-up 1
  run "$RONDO_BIN/rondo" bench-dev codecs --size 64KiB --runs 1
  run "$RONDO_BIN/rondo" bench collectives --operations all --sizes 64KiB --ranks 2 --peers --json "$json/collectives.json"
  run "$RONDO_BIN/rondo" bench-dev pipeline --model gpt-tiny --pipeline-schedule 1f1b --rounds 1 --steps 2 --warm-up 1 --peers
  run "$RONDO_BIN/rondo" bench-dev servers --runs 20 --light-workers 8 --seconds 0.5
  run "$RONDO_BIN/rondo" bench-dev strategies --workers 1,2 --seconds 1
  run "$RONDO_BIN/rondo" bench-dev startup --runs 1 --peers --json "$json/startup.json"
  run "$RONDO_BIN/rondo" bench-dev trainer --mlp-steps 50 --gpt gpt-tiny --gpt-steps 1
  run "$RONDO_BIN/rondo" bench step --model gpt-tiny --rounds 1 --steps 1 --peers --json "$json/step.json"
  run "$python" bench/planner.py --profiles 2 --units 12 --plan-time-limit 2s
  run "$python" bench/training_costs.py --parts loader
  run "$python" bench/stopping.py --runs 1
  run "$python" bench/recovery.py --runs 1 --model gpt-tiny --every 10
  run "$python" bench/strategies.py --parts emulated,computed --workers 1,2 --seconds 1 --steps 20
  run "$python" bench/scale.py
  run "$python" bench/overlap_floor.py --rounds 1 --seconds 0.5
  run "$python" bench/mesh_prediction.py --models 0 --meshes tensor=2 --steps 4
  run "$python" bench/best_mpi.py --ranks 2 --sizes 4B,64KiB --rounds 1 --bursts 1 --json "$json/best_mpi.json"
  run "$python" bench/limits.py --quick --no-docs --json "$json/limits.json"
  run "$python" bench/log_targets.py --targets otlp,tensorboard --pairs 1 --steps 200 --json "$json/log_targets.json"
  run "$python" bench/local_sgd.py --quick --json "$json/local_sgd.json"
  run "$python" bench/peers/fsdp2.py --model gpt-tiny --turns 1 --steps 1 --json "$json/fsdp2.json"
  run "$python" bench/prediction.py --models 0 --rates 1gbit --limits 1 --steps 4 --json "$json/prediction.json"
  run "$python" bench/tradeoff.py --model gpt-tiny --real-limits 1 --synthetic-limits 1 --rounds 1 --no-docs --json "$json/tradeoff.json"
}

all=(tidy docs tooling long clang compilers aarch64 asan tsan equality faults chaos survive mutate sim bundle package reproduce torches recipes pages external peers docs_api readers browser frameworks bench coverage)
if [ "$#" -eq 0 ]; then
  set -- "${all[@]}"
  if [ -z "${TESTS:-}" ]; then
    say "note: skipping peers; run it with PyTorch's sources:  make nightly TESTS=/path/to/pytorch/test"
    set -- "${@/peers/}"
  fi
  if [ -z "${GPU_LIBTORCH:-}" ]; then
    say "note: skipping bundle; run it with a virtual environment that has torch's CUDA build:  make nightly GPU_LIBTORCH=/path/of/venv"
    set -- "${@/bundle/}"
  fi
fi
for step in "$@"; do
  [ -n "$step" ] || continue
  [[ " ${all[*]} " == *" $step "* ]] || fail "no such step: $step" "There are: ${all[*]}"
done
results=()
status=0
for step in "$@"; do
  [ -n "$step" ] || continue
  began=$SECONDS
  say "$step: $logs/$step.log"
  outcome="went well"
  # A shell of its own, in no condition: its first error ends the step and not the rest.
  set +e
  (
    set -e
    "$step"
  ) >"$logs/$step.log" 2>&1
  code=$?
  set -e
  if [ "$code" -ne 0 ]; then
    outcome=FAILED status=1
    tail -n 20 "$logs/$step.log"
  fi
  results+=("$(printf '%-10s %-10s %3d min' "$step" "$outcome" $(((SECONDS - began + 30) / 60)))")
done
printf '%s\n' "" "${results[@]}"
exit "$status"
