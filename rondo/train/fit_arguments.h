#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/train/trainer.h"

namespace rondo {

// An argument of a collective call, for comparison between ranks.
struct CallArgument {
  std::string name = {};
  nlohmann::json value = {};  // a number, a text, or a list of these
  // Computes `value` again, if that may give another value each time: then ranks do not compare it.
  std::function<nlohmann::json()> again = {};
};

// Throws AgreedError on all ranks if an argument differs between them, naming the argument, its values and
// their ranks. Numbers that differ only by rounding are equal. Every rank passes the same names in the same
// order. Sends one hash if all are equal. Collective.
void verify_same_arguments(const Context& context, const std::string& call,
                           const std::vector<CallArgument>& arguments);

// Returns the values that Trainer::fit compares between ranks: the size of the data, its first, middle and
// last sample, and the options that determine the number of steps, their samples and the callbacks. Samples
// are not compared if ranks may have different ones: with files of their own, and with AutoShard::off.
// Preserves the state of the default random generators.
std::vector<CallArgument> fit_arguments(const Dataset& data, const FitOptions& options,
                                        const Strategy& strategy, c10::Device device);

}  // namespace rondo
