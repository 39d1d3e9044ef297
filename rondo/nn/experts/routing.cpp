#include "rondo/nn/experts/routing.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rondo {
namespace {

// The experts of each choice, [tokens] for the first, then for the second. Of equal probabilities argmax
// takes the first.
std::vector<at::Tensor> chosen_experts(const at::Tensor& probabilities, std::int64_t per_token) {
  std::vector<at::Tensor> chosen{probabilities.argmax(1)};
  if (per_token > 1) {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    chosen.push_back(probabilities.scatter(1, chosen.front().unsqueeze(1), kNever).argmax(1));
  }
  return chosen;
}

}  // namespace

Routing route(const at::Tensor& probabilities, std::int64_t group_size, const RoutingOptions& options) {
  const at::NoGradGuard no_gradient;
  const std::int64_t tokens = probabilities.size(0), experts = probabilities.size(1);
  std::int64_t capacity = std::numeric_limits<std::int64_t>::max();
  if (options.capacity_factor > 0) {
    const double share = static_cast<double>(options.per_token * group_size) / static_cast<double>(experts);
    capacity = static_cast<std::int64_t>(std::ceil(options.capacity_factor * share));
  }
  Routing routing{.rows = std::vector<std::int64_t>(static_cast<std::size_t>(experts), 0),
                  .first_choices = std::vector<std::int64_t>(static_cast<std::size_t>(experts), 0),
                  .choices = options.per_token * tokens};
  std::vector<std::vector<std::int64_t>> taken(static_cast<std::size_t>(experts));
  // Used places of each expert in each group.
  const std::int64_t groups = group_size > 0 ? (tokens + group_size - 1) / group_size : 0;
  std::vector<std::int64_t> used(static_cast<std::size_t>(groups * experts), 0);
  std::int64_t choice = 0;
  bool first = true;
  for (const at::Tensor& chosen : chosen_experts(probabilities, options.per_token)) {
    const at::Tensor here = chosen.cpu().contiguous();
    const auto* expert_of = here.const_data_ptr<std::int64_t>();
    for (std::int64_t token = 0; token < tokens; ++token, ++choice) {
      const auto expert = static_cast<std::size_t>(expert_of[token]);
      if (first) ++routing.first_choices[expert];
      const std::int64_t group = token / group_size;
      if (used[static_cast<std::size_t>(group * experts) + expert]++ < capacity)
        taken[expert].push_back(choice);
    }
    first = false;
  }
  std::vector<std::int64_t> all;
  for (std::size_t expert = 0; expert < taken.size(); ++expert) {
    routing.rows[expert] = static_cast<std::int64_t>(taken[expert].size());
    all.insert(all.end(), taken[expert].begin(), taken[expert].end());
  }
  routing.taken = torch::tensor(all, at::kLong).to(probabilities.device());
  return routing;
}

Routing part_of_routing(const Routing& routing, std::int64_t tokens, const at::Tensor& own) {
  const at::NoGradGuard no_gradient;
  const std::int64_t count = own.size(0);
  const at::TensorOptions whole = routing.taken.options();
  // Where each token is here; -1: elsewhere.
  const at::Tensor place = at::full({tokens}, -1, whole).index_copy(0, own, at::arange(count, whole));
  const at::Tensor here = place.index_select(0, routing.taken.remainder(tokens));
  const at::Tensor kept = here.ge(0);
  const at::Tensor rows = torch::tensor(routing.rows, at::kLong).to(whole.device());
  const auto experts = static_cast<std::int64_t>(routing.rows.size());
  const at::Tensor expert_of = at::arange(experts, whole).repeat_interleave(rows);
  const at::Tensor own_rows = expert_of.masked_select(kept).bincount({}, experts).cpu();
  const auto* first = own_rows.const_data_ptr<std::int64_t>();
  return {.taken = (routing.taken.div(tokens, "floor") * count + here).masked_select(kept),
          .rows = {first, first + experts},
          .first_choices = routing.first_choices,
          .choices = routing.choices / tokens * count};
}

at::Tensor gates_of(const at::Tensor& probabilities, std::int64_t per_token) {
  std::vector<at::Tensor> gates;
  for (const at::Tensor& chosen : chosen_experts(probabilities.detach(), per_token))
    gates.push_back(probabilities.gather(1, chosen.unsqueeze(1)).squeeze(1));
  if (per_token == 1) return gates.front();
  const at::Tensor sum = gates[0] + gates[1];
  return at::cat({gates[0] / sum, gates[1] / sum});
}

}  // namespace rondo
