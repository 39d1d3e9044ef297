#include "rondo/checkpoint/pretrained.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/error.h"
#include "rondo/checkpoint/tensor_file.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::partial_weights_test {
namespace {

class PartialWeights : public ::testing::Test {
 protected:
  // Writes a file of tensors of ones in float64.
  std::filesystem::path file(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& tensors) {
    NamedTensors named;
    for (const auto& [name, sizes] : tensors) named.push_back({name, torch::ones(sizes, at::kDouble)});
    write_tensors(directory_ / "weights.safetensors", named);
    return directory_ / "weights.safetensors";
  }
  static NamedTensors model() {
    return {{"backbone.0.weight", torch::zeros({2, 3})},
            {"backbone.0.bias", torch::zeros({2})},
            {"head.weight", torch::zeros({5, 2})}};
  }
  static std::vector<RenameRule> rules(const std::vector<std::string>& texts) {
    std::vector<RenameRule> result;
    for (const std::string& text : texts) result.push_back(parse_rename_rule(text));
    return result;
  }

  const TemporaryDirectory directory_;
};

TEST_F(PartialWeights, RulesRenameAndLeaveOut) {
  const auto path =
      file({{"encoder.0.weight", {2, 3}}, {"encoder.0.bias", {2}}, {"out.w", {5, 2}}, {"step", {}}});
  const NamedTensors to = model();
  const WeightsReport report =
      load_partial_weights(path, to, rules({"encoder.*=backbone.*", "out.w=head.weight", "step="}));
  EXPECT_TRUE(report.is_complete());
  EXPECT_EQ(report.loaded.size(), 3U);
  for (const NamedTensor& t : to) EXPECT_TRUE(at::equal(t.tensor, torch::ones_like(t.tensor))) << t.name;
}

TEST_F(PartialWeights, FirstMatchingRuleWinsAndStarsKeepOrder) {
  const auto path = file({{"layers.0.attention.weight", {2, 3}}, {"layers.0.attention.bias", {2}}});
  NamedTensors to = {{"block0/bias/attention", torch::zeros({2})}, {"w", torch::zeros({2, 3})}};
  const WeightsReport report = load_partial_weights(
      path, to, rules({"layers.0.attention.weight=w", "layers.*.*.bias=block*/bias/*", "layers.*=never.*"}),
      /*partial=*/true);
  EXPECT_EQ(report.loaded.size(), 2U);
  ASSERT_EQ(report.idle_rules.size(), 1U) << "the last rule has nothing left to match";
  EXPECT_EQ(report.idle_rules[0], "layers.*=never.*");
}

TEST_F(PartialWeights, StrictLoadNamesDifferencesAndChangesNothing) {
  const auto path = file({{"encoder.0.weight", {2, 3}}, {"encoder.0.bias", {4}}, {"old.head", {7}}});
  const NamedTensors to = model();
  const auto given = rules({"encoder.*=backbone.*", "decoder.*=tail.*"});
  const std::string said =
      ::rondo::testing::message_of<DataError>([&] { load_partial_weights(path, to, given); });
  for (const char* fact : {"weights.safetensors", "backbone.0.bias", "[4]", "[2]", "head.weight", "old.head",
                           "decoder.*=tail.*"})
    EXPECT_NE(said.find(fact), std::string::npos) << fact << " in " << said;
  for (const NamedTensor& t : to) EXPECT_EQ(t.tensor.abs().sum().item<float>(), 0) << t.name;

  const WeightsReport report = load_partial_weights(path, to, given, /*partial=*/true);
  EXPECT_FALSE(report.is_complete());
  ASSERT_EQ(report.loaded.size(), 1U);
  EXPECT_EQ(report.loaded[0].name, "backbone.0.weight");
  EXPECT_EQ(report.loaded[0].what, "encoder.0.weight");
  EXPECT_EQ(report.missing, std::vector<std::string>{"head.weight"});
  EXPECT_EQ(report.left_over, std::vector<std::string>{"old.head"});
  ASSERT_EQ(report.other_shapes.size(), 1U);
  EXPECT_EQ(report.other_shapes[0].name, "backbone.0.bias");
  EXPECT_EQ(to[0].tensor.sum().item<float>(), 6);
  EXPECT_EQ(to[1].tensor.abs().sum().item<float>(), 0) << "another shape stays as it was";
}

TEST_F(PartialWeights, NoMatchAndAmbiguousMatchAreErrors) {
  const auto path = file({{"a", {2}}, {"b", {2}}});
  const NamedTensors to = model();
  EXPECT_THROW(load_partial_weights(path, to, {}, /*partial=*/true), DataError);
  const std::string said = ::rondo::testing::message_of<DataError>([&] {
    load_partial_weights(path, to, rules({"a=backbone.0.bias", "b=backbone.0.bias"}), true);
  });
  for (const char* fact : {"'a'", "'b'", "backbone.0.bias"})
    EXPECT_NE(said.find(fact), std::string::npos) << said;
}

TEST_F(PartialWeights, ASharedTensorNeedsOneOfItsNames) {
  const at::Tensor shared = torch::zeros({2});
  const auto path = file({{"a", {2}}});
  EXPECT_TRUE(load_partial_weights(path, {{"a", shared}, {"b", shared}}, {}).is_complete());
  EXPECT_EQ(shared.sum().item<float>(), 2);
}

TEST_F(PartialWeights, RulesThatAreNoneAreRefused) {
  for (const char* text : {"", "a", "=a", "a=b=c", "a.*=b", "a=b.*", "*.*=*"})
    EXPECT_THROW(parse_rename_rule(text), UsageError) << text;
}

}  // namespace
}  // namespace rondo::partial_weights_test
