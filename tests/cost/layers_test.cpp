#include "rondo/cost/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/cost/profile_json.h"
#include "rondo/cost/synthetic.h"
#include "tests/errors.h"

namespace rondo::cost::layers_test {
namespace {

using Json = nlohmann::ordered_json;

Json document() { return to_json(synthetic_profile("gpt:layers=2,dim=64,seq=32,heads=4,batch=8", 4)); }

LayerPasses passes_of(std::uint64_t samples, double forward_s, double backward_s, double weight_s,
                      std::uint64_t activation_bytes) {
  LayerPasses passes{.samples = samples, .forward_s = forward_s, .backward_s = backward_s};
  passes.backward_weight_s = weight_s;
  passes.activation_bytes = activation_bytes;
  return passes;
}

TEST(Layers, PassesLieOnStraightLines) {
  LayerPart part;
  part.passes = {passes_of(2, 3, 6, 2, 100), passes_of(4, 5, 10, 4, 180)};
  EXPECT_DOUBLE_EQ(part.at(2).forward_s, 3);
  EXPECT_DOUBLE_EQ(part.at(3).backward_s, 8);
  EXPECT_DOUBLE_EQ(part.at(8).forward_s, 9);
  EXPECT_DOUBLE_EQ(part.at(1).backward_weight_s, 1);
  EXPECT_EQ(part.at(3).activation_bytes, 140U);
  EXPECT_EQ(part.at(1).activation_bytes, 60U);
  part.passes = {passes_of(4, 8, 16, 8, 400)};
  EXPECT_DOUBLE_EQ(part.at(1).forward_s, 2);
  EXPECT_EQ(part.at(1).activation_bytes, 100U);
}

TEST(Layers, AProfileIsReadAsItWasWritten) {
  Profile profile = synthetic_profile("gpt:layers=2,dim=64,seq=32,heads=4,batch=8", 4);
  profile.link.send_recv = CostCurve({{1024, 1e-5}, {1 << 20, 1e-3}}, "send_recv");
  const Json written = to_json(profile);
  EXPECT_EQ(written.at("format"), "rondo-profile-2");
  const Profile read = parse_profile(written, "profile");
  EXPECT_EQ(to_json(read), written);
  ASSERT_EQ(read.layers.size(), 2);
  ASSERT_NE(read.layers[1].part("tensor", 4), nullptr);
  EXPECT_EQ(read.layers[1].part("tensor", 8), nullptr) << "four heads";
  ASSERT_NE(read.layers[1].part("context", 8), nullptr);
  EXPECT_EQ(read.layers[1].part("context", 8)->dimension, "context");
  EXPECT_EQ(read.layers[1].part("expert", 2), nullptr);
  EXPECT_DOUBLE_EQ(read.link.message_seconds(1 << 20), 1e-3);
}

TEST(Layers, TheFormatBeforeIsRead) {
  Json before = document();
  before["format"] = "rondo-profile-1";
  before.erase("layers");
  EXPECT_TRUE(parse_profile(before, "profile").layers.empty());
  // Messages were not measured: takes the time that two ranks need to gather twice as much.
  const Profile profile = parse_profile(before, "profile");
  EXPECT_DOUBLE_EQ(profile.link.message_seconds(1 << 20),
                   profile.link.seconds(Collective::all_gather, 1 << 21, 2));
}

TEST(Layers, WhatCannotBeIsNamed) {
  const auto expect = [](const std::function<void(Json&)>& change, const std::vector<std::string>& facts) {
    Json json = document();
    change(json["layers"]);
    try {
      parse_profile(json, "p");
      ADD_FAILURE() << facts.front();
    } catch (const DataError& error) {
      for (const std::string& fact : facts)
        EXPECT_NE(std::string(error.what()).find(fact), std::string::npos) << error.what();
    }
  };
  expect([](Json& layers) { layers[0]["unit"] = "other"; }, {"layers[0].unit", "other"});
  expect([](Json& layers) { layers[1]["name"] = layers[0]["name"]; }, {"layers[1].name", "layers.0"});
  expect([](Json& layers) { layers[0]["parts"][0]["ranks"] = 2; }, {"parts[0].ranks", "2"});
  expect([](Json& layers) { layers[0]["parts"][1]["ranks"] = 1; }, {"parts[1].ranks", "1"});
  expect([](Json& layers) { layers[0]["parts"][1]["dimension"] = "rows"; },
         {"parts[1].dimension", "rows", "expert"});
  expect([](Json& layers) { layers[0]["parts"][1]["expert_parameter_bytes"] = 1 << 30; },
         {"parts[1].expert_parameter_bytes"});
  expect([](Json& layers) { layers[0]["parts"][0]["passes"] = Json::array(); }, {"parts[0].passes"});
  expect([](Json& layers) { layers[0]["parts"][0]["passes"][0]["forward_s"] = -1; },
         {"passes[0].forward_s", "-1"});
  expect([](Json& layers) { layers[0].erase("output_bytes"); }, {"layers[0].output_bytes"});
}

TEST(Layers, ALargerBatchHasLargerActivations) {
  const Profile one = synthetic_profile("gpt:layers=2,dim=64,seq=32,heads=4,batch=8", 4);
  const Profile two = scaled_to_batch(one, 2);
  EXPECT_EQ(two.layers[0].parts[1].forward_message_bytes, 2 * one.layers[0].parts[1].forward_message_bytes);
  EXPECT_EQ(two.layers[0].output_bytes, 2 * one.layers[0].output_bytes);
  EXPECT_EQ(two.layers[0].parts[1].parameter_bytes, one.layers[0].parts[1].parameter_bytes);
  EXPECT_DOUBLE_EQ(two.layers[0].parts[0].at(16).forward_s, two.units[0].forward_s);
}

}  // namespace
}  // namespace rondo::cost::layers_test
