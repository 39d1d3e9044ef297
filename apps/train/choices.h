#pragma once

#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// What a training can be put together from. A program may add strategies and engines of its own.
struct TrainChoices {
  std::vector<Declaration> strategies;
  std::vector<Declaration> models;
  std::vector<Declaration> data_kinds;
  std::vector<Declaration> engines;
};

// All that rondo has.
TrainChoices built_in_choices();

// A flag that chooses one of several entries, which bring flags of their own.
struct Choice {
  const char* flag;
  std::vector<Declaration> TrainChoices::*entries;
};
inline constexpr Choice kChoices[] = {{"strategy", &TrainChoices::strategies},
                                      {"model", &TrainChoices::models},
                                      {"data-kind", &TrainChoices::data_kinds},
                                      {"backend", &TrainChoices::engines}};

}  // namespace rondo
