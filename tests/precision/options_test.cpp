#include "rondo/precision/options.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/base/error.h"

namespace rondo::options_test {
namespace {

template <class Call>
void expect_usage_error(const Call& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "no error with '" << part << "'";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

PrecisionSettings settings(OptLevel level, at::ScalarType dtype = at::kHalf) {
  return resolve({.level = level, .dtype = dtype});
}

// Apex's table, and bfloat16 without a scale.
TEST(OptLevel, HasApexsMeaning) {
  const PrecisionSettings o0 = settings(OptLevel::O0);
  EXPECT_FALSE(o0.cast_model_type || o0.patch_functions || o0.master_weights || o0.loss_scale.scales());
  const PrecisionSettings o1 = settings(OptLevel::O1);
  EXPECT_TRUE(o1.patch_functions && o1.loss_scale.dynamic);
  EXPECT_FALSE(o1.cast_model_type || o1.master_weights);
  const PrecisionSettings o2 = settings(OptLevel::O2);
  EXPECT_TRUE(o2.keep_batchnorm_fp32 && o2.master_weights && o2.loss_scale.dynamic);
  EXPECT_FALSE(o2.patch_functions);
  EXPECT_EQ(o2.cast_model_type, at::kHalf);
  const PrecisionSettings o3 = settings(OptLevel::O3);
  EXPECT_EQ(o3.cast_model_type, at::kHalf);
  EXPECT_FALSE(o3.keep_batchnorm_fp32 || o3.master_weights || o3.patch_functions || o3.loss_scale.scales());
  for (const OptLevel level : {OptLevel::O1, OptLevel::O2})
    EXPECT_FALSE(settings(level, at::kBFloat16).loss_scale.scales());
  EXPECT_EQ(settings(OptLevel::O3, at::kBFloat16).cast_model_type, at::kBFloat16);
}

TEST(OptLevel, KnobsOverrideIt) {
  const PrecisionSettings settings = resolve({.level = OptLevel::O3,
                                              .dtype = at::kHalf,
                                              .keep_batchnorm_fp32 = true,
                                              .master_weights = true,
                                              .loss_scale = LossScale{.value = 128}});
  EXPECT_TRUE(settings.keep_batchnorm_fp32 && settings.master_weights && settings.loss_scale.scales());
  EXPECT_EQ(settings.loss_scale.value, 128);
  EXPECT_TRUE(resolve({.level = OptLevel::O1, .loss_scale = LossScale{.dynamic = true}}).loss_scale.dynamic);
  EXPECT_FALSE(
      resolve({.level = OptLevel::O2, .dtype = at::kHalf, .loss_scale = LossScale{}}).loss_scale.scales());
}

TEST(OptLevel, RefusesKnobsThatContradict) {
  expect_usage_error([] { resolve({.level = OptLevel::O1, .master_weights = true}); },
                     "takes no master_weights");
  expect_usage_error([] { resolve({.level = OptLevel::O1, .keep_batchnorm_fp32 = true}); },
                     "keep_batchnorm_fp32");
  expect_usage_error([] { resolve({.level = OptLevel::O1, .cast_model_type = at::kHalf}); },
                     "cast_model_type");
  expect_usage_error([] { resolve({.level = OptLevel::O2, .patch_functions = true}); },
                     "belongs to opt level O1");
  expect_usage_error([] { resolve({.level = OptLevel::O0, .master_weights = true}); }, "Use O2 or O3");
  expect_usage_error(
      [] { resolve({.level = OptLevel::O3, .dtype = at::kHalf, .loss_scale = LossScale{.dynamic = true}}); },
      "needs master_weights");
  expect_usage_error([] { resolve({.level = OptLevel::O1, .dtype = at::kFloat}); }, "not Float");
}

TEST(OptLevel, IsReadFromText) {
  EXPECT_EQ(parse_opt_level("O2", "--precision"), OptLevel::O2);
  for (const char* text : {"", "O4", "o1", "02"})
    expect_usage_error([&] { parse_opt_level(text, "--precision"); },
                       "--precision '" + std::string(text) + "'");
  EXPECT_EQ(opt_level_names(), (std::vector<std::string>{"O0", "O1", "O2", "O3"}));
  EXPECT_EQ(parse_loss_scale("dynamic", "--loss-scale"), (LossScale{.dynamic = true}));
  EXPECT_EQ(parse_loss_scale("1024", "--loss-scale"), (LossScale{.value = 1024}));
  for (const char* text : {"", "0", "-1", "nan", "static", "1e999"})
    expect_usage_error([&] { parse_loss_scale(text, "--loss-scale"); },
                       "--loss-scale '" + std::string(text) + "'");
}

TEST(MixedPrecisionPolicy, ComesBackFromTextAndJson) {
  EXPECT_EQ(parse_mixed_precision_policy(""), MixedPrecisionPolicy{});
  EXPECT_EQ(to_text(MixedPrecisionPolicy{}), "");
  const MixedPrecisionPolicy narrow = parse_mixed_precision_policy("bfloat16");
  EXPECT_EQ(narrow.param_dtype, at::kBFloat16);
  EXPECT_FALSE(narrow.reduce_dtype || narrow.output_dtype || !narrow.cast_forward_inputs);
  const MixedPrecisionPolicy full = parse_mixed_precision_policy(
      "param=float16, reduce_dtype=float32,output=float32,cast_forward_inputs=false,"
      "keep_batchnorm_fp32=true");
  EXPECT_EQ(full.param_dtype, at::kHalf);
  EXPECT_EQ(full.reduce_dtype, at::kFloat);
  EXPECT_EQ(full.output_dtype, at::kFloat);
  EXPECT_FALSE(full.cast_forward_inputs);
  EXPECT_TRUE(full.keep_batchnorm_fp32);
  for (const MixedPrecisionPolicy& policy : {MixedPrecisionPolicy{}, narrow, full}) {
    EXPECT_EQ(parse_mixed_precision_policy(to_text(policy)), policy);
    EXPECT_EQ(mixed_precision_policy_from_json(nlohmann::json::parse(to_json(policy).dump())), policy);
  }
  EXPECT_EQ(
      to_json(narrow).dump(),
      R"({"cast_forward_inputs":true,"keep_batchnorm_fp32":false,"output_dtype":null,"param_dtype":"bfloat16","reduce_dtype":null})");
  EXPECT_EQ(mixed_precision_policy_from_json({{"reduce_dtype", "float32"}}).reduce_dtype, at::kFloat);
}

TEST(MixedPrecisionPolicy, NamesWhatItCannotRead) {
  for (const char* text :
       {"int8", "param=fp16", "reduce=", "grads=float32", "cast_forward_inputs=1", ",", "=float32"})
    expect_usage_error([&] { parse_mixed_precision_policy(text); }, "mixed precision policy: ");
  using nlohmann::json;
  for (const json& value : {json::array(), json(3), json{{"param", "float16"}}, json{{"param_dtype", 16}},
                            json{{"param_dtype", "half"}}, json{{"cast_forward_inputs", "yes"}}})
    expect_usage_error([&] { mixed_precision_policy_from_json(value); }, "mixed precision policy: ");
}

}  // namespace
}  // namespace rondo::options_test
