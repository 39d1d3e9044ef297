#include "rondo/nn/experts/routing.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rondo/backend/collectives.h"

namespace rondo {
namespace {

// Returns the expert of each token, [tokens], for the first choice, then for the second. argmax takes the
// first of equal probabilities.
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
  // Used slots of each expert in each group.
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
  // Local index of each token; -1 if another rank has it.
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

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor sent(const at::Tensor& rows, const std::vector<std::int64_t>& input_rows,
                const std::vector<std::int64_t>& output_rows, const Group& group) {
  const std::int64_t count = std::accumulate(output_rows.begin(), output_rows.end(), std::int64_t{0});
  at::Tensor result = at::empty({count, rows.size(1)}, rows.options().requires_grad(false));
  all_to_all_single(result, rows, output_rows, input_rows, group);
  return result;
}

class ExchangeRows : public torch::autograd::Function<ExchangeRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const std::vector<std::int64_t>& input_rows,
                            const std::vector<std::int64_t>& output_rows, const Group& group) {
    context->saved_data["input_rows"] = input_rows;
    context->saved_data["output_rows"] = output_rows;
    context->saved_data["group"] = at::IValue::make_capsule(c10::make_intrusive<ExchangeGroup>(group));
    return sent(rows, input_rows, output_rows, group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Group group =
        c10::static_intrusive_pointer_cast<ExchangeGroup>(context->saved_data["group"].toCapsule())->group;
    return {sent(gradients[0], context->saved_data["output_rows"].toIntVector(),
                 context->saved_data["input_rows"].toIntVector(), group),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  // A holder that keeps a group in the graph until the backward pass.
  struct ExchangeGroup : torch::CustomClassHolder {
    explicit ExchangeGroup(Group g) : group(std::move(g)) {}
    Group group;
  };
};

class ScaleGradient : public torch::autograd::Function<ScaleGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value, double factor) {
    context->saved_data["factor"] = factor;
    return value.view_as(value);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const double factor = context->saved_data["factor"].toDouble();
    return {factor == 0 ? at::zeros_like(gradients[0]) : gradients[0] * factor, at::Tensor()};
  }
};

class AuxiliaryLoss : public torch::autograd::Function<AuxiliaryLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value, const at::Tensor& loss,
                            double factor) {
    context->saved_data["gradient"] = at::full_like(loss, factor);
    return value.view_as(value);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0], context->saved_data["gradient"].toTensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<std::int64_t>& input_rows,
                         const std::vector<std::int64_t>& output_rows, const Group& group) {
  return ExchangeRows::apply(rows, input_rows, output_rows, group);
}

at::Tensor scale_gradient(const at::Tensor& value, double factor) {
  return ScaleGradient::apply(value, factor);
}

at::Tensor with_auxiliary_loss(const at::Tensor& value, const at::Tensor& loss, double factor) {
  return AuxiliaryLoss::apply(value, loss, factor);
}

}  // namespace rondo
