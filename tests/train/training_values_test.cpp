#include "rondo/train/training_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rondo/base/error.h"

namespace rondo::training_values_test {
namespace {

TEST(TrainingValues, ComeBackAsTheyWere) {
  TrainingValues values;
  values.position = {.step = 7, .epoch = 1, .batch = 2, .elapsed_s = 0.5};
  values.last = {.loss = 1.25,
                 .validation = {{"loss", 0.5}, {"mae", 2}},
                 .validated_step = 6,
                 .validation_due = true,
                 .epoch = {.epoch = 1, .loss = 0.1, .predictions = 16, .samples = 8}};
  values.sampling = {{"samples", 40}, {"global_batch", 4}, {"seed", 0}, {"shuffle", true}};
  const nlohmann::json text = nlohmann::json::parse(to_json(values).dump());
  const TrainingValues read = parse_training_values(text, "state.json");
  EXPECT_EQ(read.position.step, 7);
  EXPECT_EQ(read.position.batch, 2);
  EXPECT_EQ(read.last.loss, 1.25);
  EXPECT_EQ(read.last.validation, values.last.validation);
  EXPECT_EQ(read.last.validated_step, 6);
  EXPECT_TRUE(read.last.validation_due);
  EXPECT_EQ(read.last.epoch.epoch, 1);
  EXPECT_EQ(read.last.epoch.loss, 0.1);
  EXPECT_EQ(read.last.epoch.predictions, 16);
  EXPECT_EQ(read.last.epoch.samples, 8);
  EXPECT_EQ(read.sampling, values.sampling);
  // A loss that diverged is present as NaN.
  values.last.loss = std::numeric_limits<double>::quiet_NaN();
  const TrainingValues diverged =
      parse_training_values(nlohmann::json::parse(to_json(values).dump()), "state.json");
  ASSERT_TRUE(diverged.last.loss.has_value());
  EXPECT_TRUE(std::isnan(*diverged.last.loss));
}

TEST(TrainingValues, OfAnEarlierVersionHaveNoLastFigures) {
  const TrainingValues read = parse_training_values(
      nlohmann::json::parse(R"({"step":3,"epoch":0,"batch":3,"elapsed_s":1,"sampling":{},"callbacks":{}})"),
      "x");
  EXPECT_EQ(read.position.step, 3);
  EXPECT_FALSE(read.last.loss.has_value());
  EXPECT_EQ(read.last.validated_step, -1);
  const TrainingValues without_sums = parse_training_values(
      nlohmann::json::parse(R"({"step":3,"epoch":0,"batch":3,"elapsed_s":1,"last":{"validated_step":2}})"),
      "x");
  EXPECT_EQ(without_sums.last.validated_step, 2);
  EXPECT_EQ(without_sums.last.epoch.samples, 0);
}

TEST(TrainingValues, OfACallersOwnModelHaveNoConfiguration) {
  // Parsed from text, as in a file.
  nlohmann::json values = nlohmann::json::parse(to_json(TrainingValues{}).dump());
  values["world_size"] = 2;
  values["model"] = {{"name", ""}, {"config", nullptr}};
  EXPECT_EQ(parse_training_values(values, "state.json").position.step, 0);
}

TEST(TrainingValues, ThatCannotBeAreNamed) {
  const auto refused = [](const char* key, const char* value) {
    nlohmann::json values = nlohmann::json::parse(R"({"step":3,"epoch":0,"batch":3,"elapsed_s":1})");
    values[key] = nlohmann::json::parse(value);
    try {
      parse_training_values(values, "run/state.json");
      ADD_FAILURE() << key << " " << value;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("run/state.json"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  for (const char* value :
       {"-1", "1.5", "1e308", "-9223372036854775808", "\"3\"", "null", "18446744073709551615"}) {
    for (const char* key : {"step", "epoch", "batch"}) refused(key, value);
  }
  refused("elapsed_s", "-1");
  refused("elapsed_s", "null");
  refused("sampling", "[]");
  refused("sampling", R"({"samples":40,"global_batch":0})");
  refused("sampling", R"({"samples":40,"global_batch":4,"done_before":41})");
  refused("sampling", R"({"samples":40,"global_batch":4,"done_before":-1})");
  refused("last", R"({"validation":{"last":"low"}})");
  refused("last", R"({"validation_due":1})");
  refused("last", R"({"epoch_sums":3})");
  refused("last", R"({"epoch_sums":{"epoch":0,"loss":1,"samples":1}})");
  refused("last", R"({"epoch_sums":{"epoch":0,"loss":1,"predictions":-1,"samples":1}})");
  refused("last", R"({"epoch_sums":{"epoch":0,"loss":"low","predictions":1,"samples":1}})");
  refused("sampling", R"({"samples":40,"global_batch":9007199254740992})");
  for (const char* value : {"0", "-1", "1.5", "1e308", "\"x\"", "null"}) refused("world_size", value);
  refused("model", "3");
  refused("model", R"({"name":"mlp"})");
  refused("model", R"({"name":3,"config":{}})");
  refused("model", R"({"name":"mlp","config":3})");
  EXPECT_THROW(parse_training_values(nlohmann::json::object(), "x"), DataError);
  EXPECT_THROW(parse_training_values(nlohmann::json::array(), "x"), DataError);
}

}  // namespace
}  // namespace rondo::training_values_test
