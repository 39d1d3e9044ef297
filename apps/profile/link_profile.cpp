#include "apps/profile/link_profile.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

// The slowest rank's median time of `action`, which all ranks begin together.
double measure(const Group& group, int runs, const std::function<void()>& action) {
  std::vector<double> times;
  for (int i = 0; i <= runs; ++i) {
    barrier(group);
    const TimePoint begin = Clock::now();
    action();
    if (i > 0) times.push_back(seconds(Clock::now() - begin));  // the first one warms up
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  at::Tensor slowest = at::full({1}, *middle, at::kDouble);
  all_reduce(slowest, group, ReduceOp::MAX);
  return slowest.item<double>();
}

void wait(const c10::intrusive_ptr<c10d::Work>& work) { work->wait(); }

using Collective = std::function<void(at::Tensor& whole, at::Tensor& part)>;

nlohmann::ordered_json curve(const Group& group, const LinkProfileOptions& options,
                             const Collective& collective) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  double least = 0;  // a larger message takes no less
  for (std::uint64_t bytes = 4096; bytes <= options.largest.count; bytes *= 4) {
    const std::int64_t part_size = static_cast<std::int64_t>(bytes) / 4 / group.size();
    at::Tensor whole = at::ones({part_size * group.size()});
    at::Tensor part = at::ones({part_size});
    least = std::max(least, measure(group, options.runs, [&] { collective(whole, part); }));
    points.push_back({static_cast<std::uint64_t>(whole.numel()) * 4, least});
  }
  return points;
}

// Share of its speed that `pass` loses to an all-reduce that takes about half its time. An engine without a
// thread of its own moves on only in waits and hides nothing: nearly all.
double contention(const Group& group, const LinkProfileOptions& options, const std::function<void()>& pass) {
  c10d::Backend& backend = *group.backend();
  const double alone = measure(group, options.runs, pass);
  at::Tensor buffer = at::ones({static_cast<std::int64_t>(options.largest.count / 4)});
  const auto start = [&] {
    std::vector<at::Tensor> tensors = {buffer};
    return backend.allreduce(tensors);
  };
  const double communication = measure(group, options.runs, [&] { wait(start()); });
  const int repeats = std::max(1, static_cast<int>(0.5 * alone / communication));
  const double together = measure(group, options.runs, [&] {
    std::vector<c10::intrusive_ptr<c10d::Work>> under_way;
    for (int i = 0; i < repeats; ++i) under_way.push_back(start());
    pass();
    for (const auto& work : under_way) wait(work);
  });
  const double overlapped = std::min(alone, communication * repeats);
  return std::clamp((together - std::max(alone, communication * repeats)) / overlapped, 0.0, 0.99);
}

}  // namespace

nlohmann::ordered_json profile_link(const Context& context, const LinkProfileOptions& options,
                                    const std::function<void()>& pass) {
  const Group& group = context.world();
  if (group.size() < 2) {
    throw UsageError(
        "a link connects ranks: give --nproc-per-node 2 or more, or start rondo profile under a launcher");
  }
  c10d::Backend& backend = *group.backend();
  nlohmann::ordered_json curves;
  curves["all_reduce"] = curve(group, options, [&](at::Tensor& whole, at::Tensor&) {
    std::vector<at::Tensor> tensors = {whole};
    wait(backend.allreduce(tensors));
  });
  curves["reduce_scatter"] = curve(group, options, [&](at::Tensor& whole, at::Tensor& part) {
    wait(backend._reduce_scatter_base(part, whole));
  });
  curves["all_gather"] = curve(group, options, [&](at::Tensor& whole, at::Tensor& part) {
    wait(backend._allgather_base(whole, part));
  });
  return {{"ranks", group.size()},
          {"collectives", std::move(curves)},
          {"contention", contention(group, options, pass)}};
}

}  // namespace rondo
