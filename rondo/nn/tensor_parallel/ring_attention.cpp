#include "rondo/nn/tensor_parallel/ring_attention.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "rondo/backend/collectives.h"
#include "rondo/backend/point_to_point.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/sample_dropout.h"

namespace rondo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kLength = 2;  // the dimension of [samples, heads, length, size]

// A ring of ranks, each of which passes on the tensor that it holds: after `turn` steps that is the tensor of
// owner(turn).
class Ring {
 public:
  // Concurrent rings of one group need different tags, and all ranks must start them in the same order.
  Ring(const Group& group, int tag) : group_(group), tag_(tag) {}

  int owner(int turn) const { return (group_.rank() - turn + group_.size()) % group_.size(); }

  // Starts sending `held` to the next rank and receiving from the previous one.
  void start(const at::Tensor& held) {
    received_ = at::empty_like(held);
    sent_ = held;
    const int next = (group_.rank() + 1) % group_.size();
    const int before = (group_.rank() + group_.size() - 1) % group_.size();
    works_ = start_exchange(group_, {{sent_, next, tag_}}, {{received_, before, tag_}});
  }
  at::Tensor finish() {
    const ParallelCommunication timed;
    for (const auto& work : works_) work->wait();
    works_.clear();
    sent_.reset();
    return std::move(received_);
  }

 private:
  const Group& group_;
  int tag_;
  at::Tensor sent_, received_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

// Calls `visit(query piece, key piece, on the diagonal)` for each pair of pieces in which the query sees the
// key. Piece numbers are indices into `own` and `theirs`.
void visit_pairs(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& theirs, bool causal,
                 const std::function<void(std::size_t, std::size_t, bool)>& visit) {
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::size_t j = 0; j < theirs.size(); ++j) {
      if (causal && own[i] < theirs[j]) continue;
      visit(i, j, causal && own[i] == theirs[j]);
    }
  }
}

at::Tensor piece(const at::Tensor& tensor, std::size_t number) {
  const std::int64_t length = tensor.size(kLength) / 2;
  return tensor.narrow(kLength, static_cast<std::int64_t>(number) * length, length);
}

// Returns the scores of a pair of pieces.
at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, bool diagonal) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
  at::Tensor scores = at::matmul(query * scale, key.transpose(-2, -1));
  if (diagonal) {
    const std::int64_t length = query.size(kLength);
    scores.masked_fill_(at::ones({length, length}, query.options().dtype(at::kBool)).triu(1),
                        -std::numeric_limits<double>::infinity());
  }
  return scores;
}

// State of the backward pass besides tensors.
struct RingState : torch::CustomClassHolder {
  const CommunicationClock clock = communication_clock();
  Group group;
  bool causal = false;
  std::shared_ptr<const SampleDropoutImpl> dropout;  // null: no dropout
  std::shared_ptr<const SampleInfo> samples;

  // Returns the factor of the probabilities of a pair of pieces; undefined for 1.
  at::Tensor mask_of(std::int64_t query_piece, std::int64_t key_piece, const at::Tensor& scores) const {
    if (!dropout) return {};
    const std::int64_t length = scores.size(kLength);
    return dropout
        ->square_mask(*samples, scores.size(1), 2 * group.size() * length, query_piece * length,
                      key_piece * length, length)
        .to(scores.device(), scores.scalar_type());
  }
};

at::Tensor masked(const at::Tensor& tensor, const at::Tensor& mask) {
  return mask.defined() ? tensor * mask : tensor;
}

class RingAttention : public torch::autograd::Function<RingAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value, const c10::intrusive_ptr<RingState>& state) {
    const Group& group = state->group;
    // Running sums, relative to the largest score so far.
    at::Tensor output = at::zeros_like(query, at::MemoryFormat::Contiguous);
    std::vector<std::int64_t> rows = query.sizes().vec();
    rows.back() = 1;
    at::Tensor largest = at::full(rows, -std::numeric_limits<double>::infinity(), query.options());
    at::Tensor sum = at::zeros(rows, query.options());
    const std::vector<std::int64_t> own = sequence_pieces(group.rank(), group.size());
    Ring ring(group, /*tag=*/0);
    at::Tensor held = at::stack({key, value});
    for (int turn = 0; turn < group.size(); ++turn) {
      const bool last = turn + 1 == group.size();
      if (!last) ring.start(held);
      const std::vector<std::int64_t> theirs = sequence_pieces(ring.owner(turn), group.size());
      visit_pairs(own, theirs, state->causal, [&](std::size_t i, std::size_t j, bool diagonal) {
        const at::Tensor scores = scores_of(piece(query, i), piece(held[0], j), diagonal);
        at::Tensor top = piece(largest, i), total = piece(sum, i), result = piece(output, i);
        const at::Tensor next = at::maximum(top, scores.amax(-1, true));
        const at::Tensor before = (top - next).exp();
        const at::Tensor weights = (scores - next).exp();
        total.mul_(before).add_(weights.sum(-1, true));
        result.mul_(before).add_(
            at::matmul(masked(weights, state->mask_of(own[i], theirs[j], scores)), piece(held[1], j)));
        top.copy_(next);
      });
      if (!last) held = ring.finish();
    }
    output.div_(sum);
    context->save_for_backward({query, key, value, output, largest + sum.log()});
    context->saved_data["state"] = at::IValue::make_capsule(state);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw UsageError("attention over a divided sequence cannot be differentiated twice (create_graph)");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &query = saved[0], &output = saved[3], &logarithm = saved[4];
    const auto state =
        c10::static_intrusive_pointer_cast<RingState>(context->saved_data["state"].toCapsule());
    const CommunicationClockScope scope(state->clock);
    const Group& group = state->group;
    const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
    const at::Tensor& gradient = gradients[0];
    const at::Tensor shift = (gradient * output).sum(-1, true);
    at::Tensor of_query = at::zeros_like(query, at::MemoryFormat::Contiguous);
    const std::vector<std::int64_t> own = sequence_pieces(group.rank(), group.size());
    // One ring passes keys and values, the other the gradients accumulated for them.
    Ring ring(group, /*tag=*/0), gathering(group, /*tag=*/1);
    at::Tensor held = at::stack({saved[1], saved[2]});
    for (int turn = 0; turn < group.size(); ++turn) {
      const bool last = turn + 1 == group.size();
      if (!last) ring.start(held);
      at::Tensor of_held = at::zeros_like(held);
      const std::vector<std::int64_t> theirs = sequence_pieces(ring.owner(turn), group.size());
      visit_pairs(own, theirs, state->causal, [&](std::size_t i, std::size_t j, bool diagonal) {
        const at::Tensor key = piece(held[0], j), value = piece(held[1], j), q = piece(query, i);
        const at::Tensor scores = scores_of(q, key, diagonal);
        const at::Tensor mask = state->mask_of(own[i], theirs[j], scores);
        const at::Tensor weights = (scores - piece(logarithm, i)).exp_();
        const at::Tensor g = piece(gradient, i);
        piece(of_held[1], j).add_(at::matmul(masked(weights, mask).transpose(-2, -1), g));
        const at::Tensor of_scores =
            weights * (masked(at::matmul(g, value.transpose(-2, -1)), mask) - piece(shift, i)) * scale;
        piece(of_query, i).add_(at::matmul(of_scores, key));
        piece(of_held[0], j).add_(at::matmul(of_scores.transpose(-2, -1), q));
      });
      if (turn > 0) of_held.add_(gathering.finish());
      gathering.start(of_held);
      if (!last) held = ring.finish();
    }
    const at::Tensor home = gathering.finish();
    return {of_query, home[0].clone(), home[1].clone(), {}};
  }
};

}  // namespace

std::vector<std::int64_t> sequence_pieces(int rank, int ranks) { return {rank, 2 * ranks - 1 - rank}; }

at::Tensor own_sequence(const at::Tensor& tensor, std::int64_t dimension, const Group& group) {
  if (!has_peers(group)) return tensor;
  const std::int64_t pieces = 2 * group.size(), length = tensor.size(dimension);
  if (length % pieces != 0) {
    throw UsageError(str("a sequence of ", length, " positions cannot be divided among ", group.size(),
                         " ranks: each has two of ", pieces, " equal pieces"));
  }
  std::vector<at::Tensor> own;
  for (const std::int64_t number : sequence_pieces(group.rank(), group.size()))
    own.push_back(tensor.narrow(dimension, number * (length / pieces), length / pieces));
  return at::cat(own, dimension);
}

at::Tensor whole_sequence(const at::Tensor& own, std::int64_t dimension, const Group& group) {
  if (!has_peers(group)) return own;
  std::vector<at::Tensor> ordered(static_cast<std::size_t>(2 * group.size()));
  const std::vector<at::Tensor> ranks = all_gather(own.contiguous(), group);
  const std::int64_t length = own.size(dimension) / 2;
  for (int rank = 0; rank < group.size(); ++rank) {
    std::int64_t begin = 0;
    for (const std::int64_t number : sequence_pieces(rank, group.size())) {
      ordered[static_cast<std::size_t>(number)] =
          ranks[static_cast<std::size_t>(rank)].narrow(dimension, begin, length);
      begin += length;
    }
  }
  return at::cat(ordered, dimension);
}

at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          bool causal, const Group& group, const SampleDropout& dropout) {
  auto state = c10::make_intrusive<RingState>();
  state->group = group;
  state->causal = causal;
  if (dropout && dropout->active()) {
    state->dropout = dropout.ptr();
    state->samples = SampleScope::current();
    if (!state->samples)
      throw UsageError("dropout in attention over a divided sequence needs a SampleScope: create one");
  }
  // Half precision has too few digits for sums over a whole sequence.
  const at::ScalarType dtype = query.scalar_type();
  const bool low_precision = dtype == at::kHalf || dtype == at::kBFloat16;
  const auto wide = [&](const at::Tensor& tensor) { return low_precision ? tensor.to(at::kFloat) : tensor; };
  return RingAttention::apply(wide(query), wide(key), wide(value), state).to(dtype);
}

}  // namespace rondo
