// Common mistakes in custom training loops. Under ddp, zero1 and zero3, on one host and between two, each
// mistake gives the result of one process, or an error that names the call to make. None is silent, crashes
// or hangs.
#include <gtest/gtest.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "tests/parallel/loop_mistakes/gradients.h"
#include "tests/parallel/loop_mistakes/models.h"
#include "tests/parallel/loop_mistakes/optimizers.h"
#include "tests/parallel/loop_mistakes/order.h"
#include "tests/parallel/loop_mistakes/passes.h"

namespace rondo::testing::loop_mistakes {
namespace {

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> all;
  for (const auto& part : {mistakes_of_optimizers(), mistakes_of_order(), mistakes_of_passes(),
                           mistakes_of_gradients(), mistakes_of_models()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

struct Layout {
  std::string strategy;
  int hosts;
};

// Result of one mistake on a rank.
struct Outcome {
  bool is_right = true;
  bool is_named = false;
  std::string error = {};
};

// Fails unless the program's results on this rank are as expected.
void expect_right(const Mistake& mistake, Program& program, const Alone& expected) {
  ASSERT_TRUE(mistake.alone != nullptr) << "no error";
  if (program.prepared) program.prepared->unshard();
  EXPECT_LT(parameter_difference(*program.model, *expected.model), 1e-9) << "silently other weights";
  // Some ranks may read figures that others do not.
  if (!program.seen.empty() || program.context.rank() == 0) {
    ASSERT_EQ(program.seen.size(), expected.seen.size());
    for (std::size_t i = 0; i < program.seen.size(); ++i)
      EXPECT_NEAR(program.seen[i], expected.seen[i], 1e-9) << "silently other figures";
  }
  barrier(program.context.world());
}

Outcome outcome_of(const std::exception& error, const Mistake& mistake) {
  const std::string text = error.what();
  EXPECT_TRUE(dynamic_cast<const Error*>(&error) != nullptr || is<c10::Error>(error)) << text;
  return {false,
          std::any_of(mistake.named.begin(), mistake.named.end(),
                      [&](const std::string& call) { return text.find(call) != std::string::npos; }),
          text};
}

Outcome run_row(const Mistake& mistake, const Layout& layout, Context& context) {
  SCOPED_TRACE(str(mistake.name, ", rank ", context.rank()));
  Program program(context, layout.strategy, layout.hosts > 1);
  if (mistake.applies && !mistake.applies(program)) return {};
  try {
    mistake.program(program);
    if (program.is_over) return {.is_right = false, .is_named = false, .error = "it left"};
    Alone expected;
    if (mistake.alone) mistake.alone(expected);
    expect_right(mistake, program, expected);
    return {};
  } catch (const std::exception& error) {
    return outcome_of(error, mistake);
  }
}

class LoopMistakes : public ::testing::TestWithParam<Layout> {};

TEST_P(LoopMistakes, EqualOneProcessOrNameTheCall) {
  const std::vector<Mistake> mistakes = all_mistakes();
  const bool between_hosts = GetParam().hosts > 1;
  for (std::size_t first = 0; first < mistakes.size();) {
    // A context is used until a mistake ends with an error.
    std::vector<Outcome> outcomes(2);
    std::vector<std::size_t> last(2);
    run_ranks(
        2, between_hosts ? "hierarchical(native, gloo)" : "native",
        [&](Context& context) {
          const auto rank = static_cast<std::size_t>(context.rank());
          for (std::size_t row = first; row < mistakes.size() && outcomes[rank].is_right; ++row) {
            last[rank] = row;
            outcomes[rank] = run_row(mistakes[row], GetParam(), context);
          }
        },
        std::chrono::seconds(30), between_hosts ? std::vector<int>{0, 1} : std::vector<int>{});
    const Mistake& mistake = mistakes[last[0]];
    ASSERT_EQ(last[0], last[1]) << "an error of one rank alone: " << mistake.name;
    first = last[0] + 1;
    if (outcomes[0].is_right && outcomes[1].is_right) continue;
    // A rank that waits for a failed one reports a lost peer.
    EXPECT_TRUE(outcomes[0].is_named || outcomes[1].is_named)
        << mistake.name << ": none of '" << join(mistake.named, "', '") << "' is in: " << outcomes[0].error
        << "\nnor in: " << outcomes[1].error;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, LoopMistakes,
                         ::testing::Values(Layout{"ddp", 1}, Layout{"ddp", 2}, Layout{"zero1", 1},
                                           Layout{"zero1", 2}, Layout{"zero3", 1}, Layout{"zero3", 2}),
                         [](const auto& layout) {
                           return str(layout.param.strategy, "_", layout.param.hosts, "_hosts");
                         });

TEST(LoopMistakesTable, HasAtLeastSixtyRows) { EXPECT_GE(all_mistakes().size(), 60U); }

}  // namespace
}  // namespace rondo::testing::loop_mistakes
