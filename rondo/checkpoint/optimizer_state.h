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

// The name of a training's only optimizer.
inline constexpr const char* kOptimizerName = "optimizer";

// The parameter of which `tensor`, of a snapshot of the optimizer, is; empty when it is of none.
std::string parameter_of(const std::string& optimizer, const std::string& tensor);

// Of the tensors of a snapshot the parts that belong to the parameters' shards; no shards: all of them.
NamedTensors cut_optimizer(const std::string& optimizer, const std::vector<StoredTensor>& tensors,
                           const std::vector<Shard>& shards);

// `name` prefixes the tensors. `model` gives the parameters their names. SGD, Adam, AdamW, RMSprop, Adagrad
// and classes derived from them are stored field by field; any other optimizer as the bytes of its own
// archive. Parameters that have no name in `model` are left out: they are this process's own. Throws
// UsageError for a parameter that `model` lacks.
OptimizerSnapshot snapshot_optimizer(const std::string& name, torch::optim::Optimizer& optimizer,
                                     const NamedTensors& model);

// Checks that `description` and `tensors` fit the optimizer and its parameters, and returns the function that
// puts them in place, for the caller to run when everything else has been checked too. Throws DataError
// naming what differs first, and a value that cannot be with its place; `what` describes the source, `file`
// is the file of the description where it comes from one. What the optimizer has of parameters without a name
// in `model` stays. An archive may run code when libtorch reads it: UsageError without `trusts_archive`.
std::function<void()> prepare_optimizer(const std::string& name, torch::optim::Optimizer& optimizer,
                                        const NamedTensors& model, const nlohmann::json& description,
                                        const NamedTensors& tensors, const std::string& what,
                                        bool trusts_archive, const std::string& file = {});

}  // namespace rondo
