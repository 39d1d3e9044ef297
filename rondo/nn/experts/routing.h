#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// Capacity of experts, and number of experts for each token.
struct RoutingOptions {
  std::int64_t per_token = 1;  // 1 (Switch) or 2 (GShard)
  // Limit of ceil(capacity_factor * per_token * tokens / experts) tokens of each group for an expert; 0: no
  // limit.
  double capacity_factor = 1.25;
};

// Assignment of tokens to experts.
struct Routing {
  // Choices that experts accept, ordered by expert, then by rank of the choice, then by token. Choice number
  // c * tokens + t is the c-th choice of token t. int64 [accepted choices].
  at::Tensor taken = {};
  std::vector<std::int64_t> rows = {};           // entries of `taken` for each expert
  std::vector<std::int64_t> first_choices = {};  // tokens with this first choice, accepted or not, for each
                                                 // expert
  std::int64_t choices = 0;                      // choices of all tokens; those not accepted are dropped
};

// Routes tokens by `probabilities` [tokens, experts], float, without a gradient. A token's first choice is
// the expert with the largest probability, its second choice the next one; ties go to the lower number. Each
// `group_size` consecutive tokens are a group, in which an expert accepts choices up to its capacity: all
// first choices before second ones, in the order of tokens (GShard, algorithm 1, without its random second
// expert). There must be at least per_token experts.
Routing route(const at::Tensor& probabilities, std::int64_t group_size, const RoutingOptions& options);

// Returns the part of `routing` (of `tokens` tokens) for the tokens in `own` [count], int64, in ascending
// order. These become tokens 0 to count - 1. first_choices stay those of all tokens.
Routing part_of_routing(const Routing& routing, std::int64_t tokens, const at::Tensor& own);

// Returns the weight of each choice in its token's output: its probability for one choice, its share of the
// sum of both for two. [per_token * tokens], differentiable; ordered as choices in Routing.
at::Tensor gates_of(const at::Tensor& probabilities, std::int64_t per_token);

// Exchanges rows of [rows, width] as all_to_all_single does: sends input_rows[i] rows to rank i and receives
// output_rows[i] from it. Differentiable: gradients return to the ranks of their rows. Collective, and so is
// its backward pass, which the ranks must run in the same order.
at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<std::int64_t>& input_rows,
                         const std::vector<std::int64_t>& output_rows, const Group& group);

// Returns `value`; its gradient is multiplied by `factor` in the backward pass. With 0 it is zeros, even for
// non-finite gradients.
at::Tensor scale_gradient(const at::Tensor& value, double factor);

// Returns `value`; in its backward pass `loss`, a scalar, gets the gradient `factor`, as if factor * loss
// were added to the final loss.
at::Tensor with_auxiliary_loss(const at::Tensor& value, const at::Tensor& loss, double factor);

}  // namespace rondo
