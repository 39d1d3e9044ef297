#pragma once

#include "rondo/strategy/registry.h"

namespace rondo {

// The whole of a program that is one rank of `rondo train`, with these strategies and the engines of
// register_backend(): understands the command line, whose help and errors know their options, and trains.
// Returns the exit code.
int run_rank(int argc, const char* const* argv, const StrategyRegistry& strategies);

}  // namespace rondo
