#include "rondo/data/dataset.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

const at::Tensor& only_one(const std::vector<at::Tensor>& tensors, const char* what) {
  if (tensors.size() == 1) return tensors.front();
  throw UsageError(str("a batch has ", tensors.size(), " ", what, " where one is wanted"));
}

}  // namespace

const at::Tensor& Batch::input() const { return only_one(inputs, "inputs"); }

const at::Tensor& Batch::target() const { return only_one(targets, "targets"); }

nlohmann::json DatasetInfo::model_config() const {
  if (vocabulary > 0) {
    nlohmann::json config = {{"vocabulary", vocabulary}};
    if (targets_per_sample == 1) config["classes"] = classes;
    return config;
  }
  if (unit == "tokens") return {{"context", input_shape.at(0)}, {"vocabulary", classes}};
  // Of numbers a model has as many outputs as a sample has targets.
  return {{"input_shape", input_shape}, {"classes", classes > 0 ? classes : targets_per_sample}};
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size) {
      throw UsageError(str("sample ", index, " asked for, expected 0 to ", size - 1));
    }
  }
}

}  // namespace rondo
