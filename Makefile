# rondo's front door. Every command sets up what it needs, and does nothing that is already done.
#
#   PRESET=release|dev|debug|asan|tsan   which build `build`, `test` and `install` use (default: release; dev compiles
#                                    file by file, so that one change is built soon)
#   LIBTORCH=/path                   use this libtorch (a libtorch folder, a wheel's torch folder or a virtual
#                                    environment) instead of installing torch into .venv
#   PREFIX=/path                     where `install` puts things (default: /usr/local)
PRESET ?= release
PREFIX ?= /usr/local
SHELL := /bin/bash
export LIBTORCH

.DEFAULT_GOAL := help
.PHONY: help setup setup-programs setup-peers build test quickstart format format-check tidy tidy-changed syntax coverage nightly asan tsan sanitize-short mutate equality faults chaos-short survive support plugin-peers bench-planner bench-prediction bench-limits bench-tradeoff bench-mpi install clean

help: ## list the commands
	@echo "make COMMAND [PRESET=$(PRESET)] [LIBTORCH=/path] [PREFIX=$(PREFIX)]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

setup: ## system packages and .venv (what is missing only)
	@scripts/setup.sh

setup-programs:
	@scripts/setup.sh --programs

setup-peers: ## also Open MPI, Slurm and sshd (no service is started), for the engine mpi, tests and benchmarks next to them
	@scripts/setup.sh --peers

build: setup ## configure and build everything
	@scripts/configure.sh $(PRESET)
	@scripts/build.py build/$(PRESET)

test: build ## build, then run every test; ends with a line of counts
	@scripts/test.sh $(PRESET)

quickstart: setup-programs ## train a small GPT on this repository's sources on two processes and write its report
	@scripts/configure.sh $(PRESET)
	@scripts/build.py build/$(PRESET) quickstart_programs
	@scripts/quickstart.sh build/$(PRESET)/bin

format: setup ## format all C++ files
	@scripts/format.sh

format-check: setup ## fail when a C++ file is not formatted
	@scripts/format.sh --check

tidy: setup ## clang-tidy on all C++ files, or on FILES="a.cpp b.cpp"
	@scripts/tidy.sh $(FILES)

tidy-changed: setup ## clang-tidy on what changed since this branch began, or since the commit before
	@scripts/tidy.sh --changed

syntax: setup ## clang, or COMPILER=g++-11, reads all layers and programs, or LAYERS="data train", without compiling them
	@scripts/syntax.sh $(LAYERS)

coverage: setup ## build with counters, run the tests, print the share of lines that they run
	@scripts/coverage.sh

nightly: setup ## all that continuous integration has no time for, hours; STEPS="asan bench", TESTS=/path/to/pytorch/test, GPU_LIBTORCH=/path/of/venv
	@TESTS="$(TESTS)" GPU_LIBTORCH="$(GPU_LIBTORCH)" scripts/nightly.sh $(STEPS)

asan: setup ## every C++ test under the address and undefined-behaviour sanitizers
	@scripts/sanitize.sh asan

tsan: setup ## the torch-free tests, and the watch over devices, under the thread sanitizer
	@scripts/sanitize.sh tsan

sanitize-short: setup ## the part of tsan and asan that continuous integration runs
	@scripts/sanitize.sh --short tsan
	@scripts/sanitize.sh --short asan

mutate: build ## thousands of damaged inputs of every kind through every program, with limits; prints its seed
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python tests/mutate/run.py

equality: build ## training under every strategy and schedule, on 1 to 4 ranks, against one process
	@RONDO_EQUALITY=all build/$(PRESET)/bin/train_test --gtest_filter='*Equality*:OnMeshes/*:*/ShardedCheckpoints.*:*/Rebuild.*'
	@RONDO_EQUALITY=all build/$(PRESET)/bin/parallel_test --gtest_filter='*ShardedCodec*'

survive: build ## checkpoints, whole and in parts: kill -9 at 500 moments of saves each, 10,000 damaged ones each loaded
	@RONDO_SURVIVE_KILLS=500 build/$(PRESET)/bin/format_test --gtest_filter='CheckpointDirectory.SurvivesKillAtAnyMoment'
	@RONDO_SURVIVE_KILLS=500 build/$(PRESET)/bin/train_test --gtest_filter='CheckpointParts.SurviveKillAtAnyMoment'
	@RONDO_SURVIVE_DAMAGED=10000 build/$(PRESET)/bin/quick_test --gtest_filter='*Damage.*'

chaos-short: build ## 200 random faults in trainings of every strategy, on 1 to 3 emulated hosts; prints its seed (root)
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python tests/chaos/run.py --count 200

faults: build ## kill and stop every rank in every step of every collective algorithm, over every channel
	@RONDO_FAULTS=all build/$(PRESET)/bin/collective_test --gtest_filter='ScheduleFaults*:EngineFaults*'
	@RONDO_FAULTS=all build/$(PRESET)/bin/backend_test --gtest_filter='PointToPointFaults*'
	@RONDO_FAULTS=all build/$(PRESET)/bin/parallel_test --gtest_filter='PipelineFaults*'
	@RONDO_FAULTS=all RONDO_BIN=build/$(PRESET)/bin .venv/bin/python -m pytest tests/integration/mpi_test.py -s -k 'stopped or killed'
	@RONDO_FAULTS=all RONDO_BIN=build/$(PRESET)/bin .venv/bin/python -m pytest tests/integration/server_faults_test.py -s

support: build ## every strategy with everything a training may have besides, each by itself; writes docs/support.md
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python tests/integration/support.py
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python tests/integration/support_loops.py

plugin-peers: $(if $(TORCH),,build) ## PyTorch's own tests over Gloo and rondo, TESTS=/path/to/pytorch/test [SUITES=spawn,gloo] [NAMES=x] [REPEAT=20] [TORCH=2.15.0]
	@test -n "$(TESTS)" || { echo "set TESTS=/path, the folder test of PyTorch's sources" >&2; exit 2; }
	@TORCH="$(TORCH)" PRESET="$(PRESET)" scripts/plugin_peers.sh "$(TESTS)" $(if $(SUITES),--suites $(SUITES)) $(if $(NAMES),--names "$(NAMES)") $(if $(REPEAT),--repeat $(REPEAT)) $(if $(JSON),--json $(JSON))

bench-planner: build ## the planner on 200 random profiles, against its bound and its baselines
	@RONDO_BIN=build/$(PRESET)/bin bench/planner.py

bench-prediction: build ## plans' predictions next to real runs between two emulated hosts (root)
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python bench/prediction.py --docs --json build/benchmarks/prediction.json

bench-limits: build ## planned training next to every uniform strategy and FSDP2 at six memory limits, 25 minutes; writes docs (root)
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python bench/limits.py --json build/benchmarks/limits.json

bench-tradeoff: build ## memory for the schedule against memory for keeping parameters; writes docs (root)
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python bench/tradeoff.py --json build/benchmarks/tradeoff.json

bench-mpi: build ## all_reduce next to Open MPI, MPICH and Intel MPI from PyPI; ARGS="--rounds 5 --realtime --docs"
	@RONDO_BIN=build/$(PRESET)/bin .venv/bin/python bench/best_mpi.py --json build/benchmarks/best_mpi.json $(ARGS)

.PHONY: gpu-bundle gpu-check
gpu-bundle: ## programs, libraries and checks for machines with a card, in build/gpu/rondo-gpu.tar.gz; LIBTORCH=/path of a CUDA torch
	@scripts/gpu_bundle.py

gpu-check: ## trainings on a card against the CPU's losses, and steps beside PyTorch's; ARGS="--only PART --json FILE"
	@scripts/gpu_check.sh $(ARGS)

.PHONY: docs-api
docs-api: ## the reference of the public headers, in build/docs-api; fails when one of them lacks a comment
	@scripts/docs_api.sh

.PHONY: package
package: setup ## wheel, tar archive and Debian package in build/package, tested in clean environments; KINDS="wheel tar deb" TORCH=2.15.0
	@TORCH="$(TORCH)" scripts/package.sh $(KINDS)

.PHONY: docs docs-serve
docs: ## the documentation site, in build/docs; fails at a dead link or a page in no table of contents
	@scripts/docs.sh

docs-serve: ## show the documentation site on this machine
	@scripts/docs.sh --serve

install: build ## install headers, libraries and programs to PREFIX
	@cmake --install build/$(PRESET) --prefix $(PREFIX)

clean: ## remove all builds (keeps .venv)
	@rm -rf build .cache
