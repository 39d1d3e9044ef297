#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/train/trainer.h"

namespace rondo {

// An argument of a call that all ranks make together, as they compare it.
struct CallArgument {
  std::string name = {};
  nlohmann::json value = {};  // a number, a text, or a list of such
  // Computes `value` once more, where that may give another one each time: then ranks do not compare it.
  std::function<nlohmann::json()> again = {};
};

// Throws AgreedError on all ranks when an argument differs between them, naming the argument, its values and
// the ranks that gave them. Numbers that differ by a rounding are equal. Every rank gives the same names in
// the same order. Sends one hash where all are equal. Collective.
void verify_same_arguments(const Context& context, const std::string& call,
                           const std::vector<CallArgument>& arguments);

// Returns the values that Trainer::fit compares between ranks: the size of the data, its first, middle and
// last sample, and the options that decide the number of steps, their samples and the callbacks. Samples are
// not compared where each rank may have others: those of files of its own, and with AutoShard::off. Leaves
// the default random generators as they were.
std::vector<CallArgument> fit_arguments(const Dataset& data, const FitOptions& options,
                                        const Strategy& strategy, c10::Device device);

}  // namespace rondo
