#include "rondo/profile/job_profile.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/models/model.h"
#include "rondo/models/model_setup.h"
#include "tests/backend/ranks.h"

namespace rondo::job_profile_test {
namespace {

// bert's configuration holds the number of its positions, not the length of the sequences.
TEST(JobProfile, BelongsToTheLengthOfSequences) {
  testing::run_ranks(1, "native", [](Context& context) {
    const Model model = make_model(
        "bert",
        {{"layers", 1}, {"heads", 2}, {"width", 8}, {"positions", 16}, {"vocabulary", 16}, {"classes", 2}});
    const auto described = [&](std::int64_t samples, std::int64_t length) {
      const ExampleBatch example = example_batch(model, samples, length);
      return describe_job(model, {{example.input}, {example.target}, samples}, "adamw", "cross_entropy",
                          context);
    };
    EXPECT_NE(described(4, 8).find("batch 4 a rank of 8 tokens, adamw, 1 ranks"), std::string::npos)
        << described(4, 8);
    EXPECT_NE(described(4, 8), described(4, 16));
    EXPECT_NE(described(4, 8), described(2, 8));
  });
}

}  // namespace
}  // namespace rondo::job_profile_test
