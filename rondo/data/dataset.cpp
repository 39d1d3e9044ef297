#include "rondo/data/dataset.h"

#include <torch/types.h>

#include <algorithm>

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
  // For regression, the number of outputs is the number of targets of a sample.
  return {{"input_shape", input_shape}, {"classes", classes > 0 ? classes : targets_per_sample}};
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size) {
      throw UsageError(str("sample ", index, " asked for, expected 0 to ", size - 1));
    }
  }
}

namespace {

std::vector<at::Tensor> rows_of(const std::vector<at::Tensor>& tensors, const at::Tensor& rows) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.index_select(0, rows));
  return result;
}

}  // namespace

TensorDataset::TensorDataset(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets,
                             std::int64_t classes)
    : inputs_(std::move(inputs)), targets_(std::move(targets)) {
  if (inputs_.empty()) throw UsageError("a data set of tensors needs an input");
  const auto check = [this](const char* what, const std::vector<at::Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].dim() > 0 && inputs_.front().dim() > 0 && tensors[i].size(0) == size()) continue;
      throw UsageError(str("a data set of tensors: ", what, " ", i, " has sizes ",
                           c10::str(tensors[i].sizes()), ", input 0 has ", c10::str(inputs_.front().sizes()),
                           "; all must have as many rows, one for each sample"));
    }
  };
  check("input", inputs_);
  check("target", targets_);
  info_.kind = "tensors";
  info_.source = "memory";
  info_.input_shape = inputs_.front().sizes().slice(1).vec();
  info_.classes = classes;
  if (!targets_.empty())
    info_.targets_per_sample = targets_.front().numel() / std::max<std::int64_t>(1, size());
}

Batch TensorDataset::get(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  const at::Tensor rows =
      torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kLong);
  return {.inputs = rows_of(inputs_, rows),
          .targets = rows_of(targets_, rows),
          .samples = static_cast<std::int64_t>(indices.size())};
}

}  // namespace rondo
