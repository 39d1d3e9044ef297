#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// How many tokens an expert takes, and how many experts a token goes to.
struct RoutingOptions {
  std::int64_t per_token = 1;  // 1 (Switch) or 2 (GShard)
  // An expert takes at most ceil(capacity_factor * per_token * tokens / experts) tokens of each group; 0:
  // all.
  double capacity_factor = 1.25;
};

// Which tokens go to which expert.
struct Routing {
  // Choices that an expert takes, ordered by expert, then by rank of the choice, then by token: choice number
  // c * tokens + t is the c-th of token t. int64 [choices taken].
  at::Tensor taken = {};
  std::vector<std::int64_t> rows = {};           // of `taken` for each expert
  std::vector<std::int64_t> first_choices = {};  // tokens whose first choice each expert is, taken or not
  std::int64_t choices = 0;                      // of all tokens; those that are not taken are dropped
};

// `probabilities` [tokens, experts], float, without a gradient: each token's first choice is the expert with
// the largest, its second the next; of equal ones the expert with the lowest number. `group_size` tokens that
// follow each other are a group, in which an expert takes choices up to its capacity: all first choices
// before the second ones, in the order of tokens (GShard, algorithm 1, without its random second expert).
// Every token has `experts` experts to choose from, at least per_token.
Routing route(const at::Tensor& probabilities, std::int64_t group_size, const RoutingOptions& options);

// What of `routing`, which is of `tokens` tokens, concerns those in `own` [count], int64, ascending in the
// order in which choices are taken: they become tokens 0 to count - 1. First choices stay those of all.
Routing part_of_routing(const Routing& routing, std::int64_t tokens, const at::Tensor& own);

// What each choice of a token counts in its output: of one choice its probability, of two their shares of the
// sum of both. [per_token * tokens], differentiable; choices as in Routing.
at::Tensor gates_of(const at::Tensor& probabilities, std::int64_t per_token);

// Rows of [rows, width] to the ranks of a group and from them, as all_to_all_single: input_rows[i] for rank
// i, output_rows[i] from it. Differentiable: gradients go back where their rows came from. Collective, and
// its backward pass, too, which the ranks make in one order.
at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<std::int64_t>& input_rows,
                         const std::vector<std::int64_t>& output_rows, const Group& group);

// `value` itself; its gradient is multiplied by `factor` on its way back. With 0 it is zeros, whatever came.
at::Tensor scale_gradient(const at::Tensor& value, double factor);

// `value` itself; in its backward pass `loss`, a scalar, gets the gradient `factor`, as if factor * loss had
// been added to what the pass began with.
at::Tensor with_auxiliary_loss(const at::Tensor& value, const at::Tensor& loss, double factor);

}  // namespace rondo
