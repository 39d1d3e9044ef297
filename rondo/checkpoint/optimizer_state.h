#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/shard.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

struct StoredTensor;

// Name of the only optimizer of a training.
inline constexpr const char* kOptimizerName = "optimizer";

// Returns the parameter that `tensor` of an optimizer snapshot belongs to; empty if it belongs to none.
std::string parameter_of(const std::string& optimizer, const std::string& tensor);

// Returns the parts of a snapshot's tensors that belong to the parameters' shards; without shards, the whole
// tensors.
NamedTensors cut_optimizer(const std::string& optimizer, const std::vector<StoredTensor>& tensors,
                           const std::vector<Shard>& shards);

// Takes a snapshot; `name` prefixes the tensors, and `model` names the parameters. SGD, Adam, AdamW, RMSprop,
// Adagrad and classes derived from them are stored field by field; any other optimizer as the bytes of its
// own archive. Skips parameters with an empty name in `model`, which belong to this process only. Throws
// UsageError for a parameter that `model` lacks.
OptimizerSnapshot snapshot_optimizer(const std::string& name, torch::optim::Optimizer& optimizer,
                                     const NamedTensors& model);

// Checks that `description` and `tensors` fit the optimizer and its parameters. Returns the function that
// applies them, for the caller to run after all other checks. Throws DataError naming the first difference,
// or an invalid value with its location. `what` describes the source; `file` is the file of the description,
// if any. Keeps the state of parameters with an empty name in `model`. libtorch may run code when it reads an
// archive, so an archive is a UsageError without `trusts_archive`.
std::function<void()> prepare_optimizer(const std::string& name, torch::optim::Optimizer& optimizer,
                                        const NamedTensors& model, const nlohmann::json& description,
                                        const NamedTensors& tensors, const std::string& what,
                                        bool trusts_archive, const std::string& file = {});

}  // namespace rondo
