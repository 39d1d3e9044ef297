#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/checkpoint/optimizer_state.h"

namespace rondo::optimizer_description_test {
namespace {

using nlohmann::json;

// A parameter after one optimizer step, with the saved state of both.
template <class Kind, class Options>
struct Saved {
  explicit Saved(const Options& options) : optimizer(std::vector<at::Tensor>{weight}, options) {
    weight.mutable_grad() = at::ones_like(weight);
    optimizer.step();
    snapshot = snapshot_optimizer("optimizer", optimizer, model());
  }
  NamedTensors model() const { return NamedTensors{NamedTensor{"weight", weight}}; }

  // Returns the error for a description with another value at `pointer`; empty if it is accepted.
  std::string complaint_about(const char* pointer, const char* value) {
    json description = snapshot.description;
    description[json::json_pointer(pointer)] = json::parse(value);
    try {
      prepare_optimizer("optimizer", optimizer, model(), description, snapshot.tensors, "checkpoint c",
                        /*trusts_archive=*/false, "c/state.json");
    } catch (const DataError& error) {
      return error.what();
    }
    return {};
  }

  at::Tensor weight = at::zeros({3}).requires_grad_(true);
  Kind optimizer;
  OptimizerSnapshot snapshot;
};

using SavedAdamW = Saved<torch::optim::AdamW, torch::optim::AdamWOptions>;
using SavedSgd = Saved<torch::optim::SGD, torch::optim::SGDOptions>;

void expect_refused(const std::string& complaint, const char* pointer, const char* value) {
  const std::string key = std::string(pointer).substr(std::string(pointer).rfind('/') + 1);
  EXPECT_NE(complaint.find("c/state.json"), std::string::npos)
      << pointer << " " << value << ": " << complaint;
  if (key.find_first_not_of("0123456789") != std::string::npos) {
    EXPECT_NE(complaint.find(key), std::string::npos) << complaint;
  }
  EXPECT_EQ(complaint.find("json.exception"), std::string::npos) << complaint;
}

TEST(OptimizerDescription, InvalidValuesNameTheirPlace) {
  SavedAdamW saved(torch::optim::AdamWOptions(0.1));
  EXPECT_EQ(saved.complaint_about("/groups/0/options/lr", "0.5"), "");
  EXPECT_EQ(saved.complaint_about("/groups/0/options/betas", "[0, 1]"), "");
  EXPECT_EQ(saved.complaint_about("/state/weight/step", "7"), "");
  const auto refused = [&](const char* pointer, const char* value) {
    expect_refused(saved.complaint_about(pointer, value), pointer, value);
  };
  for (const char* value : {"\"high\"", "null", "-1e308", "-1", "[]"}) {
    refused("/groups/0/options/lr", value);
    refused("/groups/0/options/eps", value);
  }
  for (const char* value : {"5", "[5]", "[0.9, \"x\"]", "[0.9, 5]", "[0.9, 0.99, 0.999]", "{}"})
    refused("/groups/0/options/betas", value);
  refused("/groups/0/options/amsgrad", "1");
  refused("/groups/0/options", "3");
  refused("/groups/0/parameters", "\"weight\"");
  refused("/groups/0/parameters/0", "3");
  refused("/groups/0", "3");
  refused("/groups", "3");
  for (const char* value : {"-5", "1e308", "1.5", "\"1\"", "null", "9223372036854775807"})
    refused("/state/weight/step", value);
  refused("/state/weight", "3");
  for (const char* value : {"3", "[]", "null", "\"x\""}) refused("/state", value);
  refused("/type", "3");
}

TEST(OptimizerDescription, OnlyADampeningMayBeBelowZero) {
  SavedSgd saved(torch::optim::SGDOptions(0.1).momentum(0.9));
  EXPECT_EQ(saved.complaint_about("/groups/0/options/dampening", "-0.5"), "");
  for (const char* key : {"lr", "momentum", "weight_decay"}) {
    const std::string pointer = std::string("/groups/0/options/") + key;
    expect_refused(saved.complaint_about(pointer.c_str(), "-0.5"), pointer.c_str(), "-0.5");
  }
}

}  // namespace
}  // namespace rondo::optimizer_description_test
