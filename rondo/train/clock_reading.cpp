#include "rondo/train/clock_reading.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

constexpr int kQuestions = 16;

at::Tensor time_now() { return torch::full({1}, static_cast<std::int64_t>(monotonic_ns()), at::kLong); }

// Returns a name that is the same for processes with the same clock: those of one kernel, unless a container
// has a clock offset (time_namespaces(7)).
std::string name_of_clock(const Context& context) {
  std::string kernel;
  try {
    kernel = read_text_file("/proc/sys/kernel/random/boot_id");
  } catch (const DataError&) {
    kernel = context.host();
  }
  std::error_code unknown;
  return kernel + std::filesystem::read_symlink("/proc/self/ns/time", unknown).string();
}

ClockReading ask_rank_0(const Group& world) {
  ClockReading best;
  std::int64_t shortest_ns = INT64_MAX;
  at::Tensor answer = torch::empty({1}, at::kLong);
  for (int question = 0; question < kQuestions; ++question) {
    const std::int64_t sent_ns = monotonic_ns();
    send(answer, world, 0);
    recv(answer, world, 0);
    const std::int64_t received_ns = monotonic_ns();
    if (received_ns - sent_ns >= shortest_ns) continue;
    shortest_ns = received_ns - sent_ns;
    best.own_ns = sent_ns + shortest_ns / 2;
    best.ahead_ns = answer.item<std::int64_t>() - best.own_ns;
  }
  return best;
}

void answer_rank(int rank, const Group& world) {
  at::Tensor question = torch::empty({1}, at::kLong);
  for (int each = 0; each < kQuestions; ++each) {
    recv(question, world, rank);
    send(time_now(), world, rank);
  }
}

}  // namespace

ClockReading read_clock(const Context& context) {
  ClockReading reading{.own_ns = monotonic_ns()};
  if (context.local_world_size() == context.world_size()) return reading;
  const Group& world = context.world();
  const std::vector<nlohmann::json> clocks = all_gather_object(name_of_clock(context), world);
  const auto first_with_clock_of = [&](int rank) {
    const auto& clock = clocks[static_cast<std::size_t>(rank)];
    return static_cast<int>(std::find(clocks.begin(), clocks.end(), clock) - clocks.begin());
  };
  for (int rank = 1; rank < context.world_size(); ++rank) {
    if (first_with_clock_of(rank) != rank) continue;
    if (context.rank() == 0) answer_rank(rank, world);
    if (context.rank() == rank) reading = ask_rank_0(world);
  }
  const auto reader = static_cast<std::size_t>(first_with_clock_of(context.rank()));
  const nlohmann::json told =
      all_gather_object({{"own_ns", reading.own_ns}, {"ahead_ns", reading.ahead_ns}}, world)[reader];
  return {.own_ns = told.at("own_ns").get<std::int64_t>(),
          .ahead_ns = told.at("ahead_ns").get<std::int64_t>()};
}

}  // namespace rondo
