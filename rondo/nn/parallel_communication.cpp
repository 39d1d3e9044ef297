#include "rondo/nn/parallel_communication.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

CommunicationClock& clock_of_thread() {
  thread_local CommunicationClock clock = std::make_shared<std::atomic<std::int64_t>>(0);
  return clock;
}

at::Tensor summed(const at::Tensor& input, const Group& group) {
  const ParallelCommunication timed;
  at::Tensor sum = input.clone(at::MemoryFormat::Contiguous);
  if (sum.numel() > 0) all_reduce(sum, group);  // a batch without samples is empty on all ranks
  return sum;
}

at::Tensor concatenated(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  const ParallelCommunication timed;
  if (input.numel() > 0) return at::cat(all_gather(input.contiguous(), group), dimension);
  return at::cat(std::vector<at::Tensor>(static_cast<std::size_t>(group.size()), input), dimension);
}

std::int64_t part_length(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  const std::int64_t length = input.size(dimension);
  if (length % group.size() == 0) return length / group.size();
  throw UsageError(str("dimension ", dimension, " of [", join(input.sizes(), ", "), "] has the length ",
                       length, ", which the ", group.size(), " ranks of group '", group.name(),
                       "' do not divide"));
}

at::Tensor part_of(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  const std::int64_t length = part_length(input, dimension, group);
  return input.narrow(dimension, group.rank() * length, length).contiguous();
}

at::Tensor part_of_sum(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  part_length(input, dimension, group);
  if (input.numel() == 0) return part_of(input, dimension, group);
  const ParallelCommunication timed;
  if (dimension == 0) return reduce_scatter(input.contiguous(), group);
  return reduce_scatter(at::stack(input.chunk(group.size(), dimension)), group).squeeze(0);
}

// A holder that keeps the group and clock of a forward pass in the graph until its backward pass.
struct ForwardPass : torch::CustomClassHolder {
  explicit ForwardPass(Group g) : group(std::move(g)) {}
  const Group group;
  const CommunicationClock clock = communication_clock();
};

using Operation = at::Tensor (*)(const at::Tensor&, std::int64_t, const Group&);

at::Tensor nothing(const at::Tensor& input, std::int64_t, const Group&) { return input.alias(); }
at::Tensor sum(const at::Tensor& input, std::int64_t, const Group& group) { return summed(input, group); }

// An autograd function: the forward operation and its backward.
template <Operation kForward, Operation kBackward>
class Communicate : public torch::autograd::Function<Communicate<kForward, kBackward>> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, std::int64_t dimension,
                            const Group& group) {
    context->saved_data["dimension"] = dimension;
    context->saved_data["pass"] = at::IValue::make_capsule(c10::make_intrusive<ForwardPass>(group));
    return kForward(input, dimension, group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw UsageError("layers divided among ranks cannot be differentiated twice (create_graph)");
    const auto pass =
        c10::static_intrusive_pointer_cast<ForwardPass>(context->saved_data["pass"].toCapsule());
    const CommunicationClockScope scope(pass->clock);
    return {kBackward(gradients[0], context->saved_data["dimension"].toInt(), pass->group), {}, {}};
  }
};

}  // namespace

bool has_peers(const Group& group) { return group.member() && group.size() > 1; }

ParallelCommunication::ParallelCommunication() : begin_(monotonic_ns()) {}
ParallelCommunication::~ParallelCommunication() { *clock_of_thread() += monotonic_ns() - begin_; }

CommunicationClock communication_clock() { return clock_of_thread(); }

Duration take_parallel_communication_time() {
  return std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(clock_of_thread()->exchange(0)));
}

CommunicationClockScope::CommunicationClockScope(CommunicationClock clock)
    : outer_(std::exchange(clock_of_thread(), std::move(clock))) {}

CommunicationClockScope::~CommunicationClockScope() { clock_of_thread() = std::move(outer_); }

at::Tensor copy_to_ranks(const at::Tensor& input, const Group& group) {
  return has_peers(group) ? Communicate<nothing, sum>::apply(input, 0, group) : input;
}

at::Tensor sum_over_ranks(const at::Tensor& input, const Group& group) {
  return has_peers(group) ? Communicate<sum, nothing>::apply(input, 0, group) : input;
}

at::Tensor gather_from_ranks(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  return has_peers(group) ? Communicate<concatenated, part_of>::apply(input, dimension, group) : input;
}

at::Tensor own_part(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  return has_peers(group) ? Communicate<part_of, concatenated>::apply(input, dimension, group) : input;
}

at::Tensor all_gather_parts(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  return has_peers(group) ? Communicate<concatenated, part_of_sum>::apply(input, dimension, group) : input;
}

at::Tensor reduce_scatter_parts(const at::Tensor& input, std::int64_t dimension, const Group& group) {
  return has_peers(group) ? Communicate<part_of_sum, concatenated>::apply(input, dimension, group) : input;
}

namespace {

class DividedCrossEntropy : public torch::autograd::Function<DividedCrossEntropy> {
 public:
  // `logits` [rows, classes of this rank], `target` [rows].
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            const Group& group) {
    const std::int64_t classes = logits.size(1);
    at::Tensor largest = logits.amax(1);
    reduce(largest, group, ReduceOp::MAX);
    at::Tensor shares = logits - largest.unsqueeze(1);  // becomes the softmax
    const at::Tensor own = target - group.rank() * classes;
    const at::Tensor mine = own.ge(0).logical_and(own.lt(classes)).logical_and(target.ne(kIgnoredTarget));
    const at::Tensor index = own.masked_fill(mine.logical_not(), 0).unsqueeze(1);
    const at::Tensor of_target = shares.gather(1, index).squeeze(1).masked_fill(mine.logical_not(), 0);
    shares.exp_();
    at::Tensor sums = at::stack({shares.sum(1), of_target});
    reduce(sums, group, ReduceOp::SUM);
    shares.div_(sums[0].unsqueeze(1));
    const at::Tensor counted = target.ne(kIgnoredTarget);
    context->save_for_backward({shares, index, mine, counted});
    return (sums[0].log() - sums[1]).masked_fill(counted.logical_not(), 0).sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    // Softmax, less one at the target; zero in ignored rows.
    at::Tensor gradient = saved[0] * (saved[3] * gradients[0]).unsqueeze(1);
    gradient.scatter_add_(1, saved[1], (saved[2] * -gradients[0]).to(gradient.scalar_type()).unsqueeze(1));
    return {gradient, {}, {}};
  }

 private:
  static void reduce(at::Tensor& tensor, const Group& group, ReduceOp op) {
    const ParallelCommunication timed;
    if (has_peers(group) && tensor.numel() > 0) all_reduce(tensor, group, op);
  }
};

}  // namespace

at::Tensor cross_entropy_of_parts(const at::Tensor& logits, const at::Tensor& target, const Group& group) {
  const bool leads =
      logits.dim() == target.dim() + 1 && logits.sizes().slice(0, target.dim()) == target.sizes();
  if (!leads || target.scalar_type() != at::kLong) {
    throw UsageError(str("cross entropy of divided classes: logits of ", describe_shape(logits),
                         " and a target of ", describe_shape(target),
                         "; the target is int64 and has the logits' sizes without the last one"));
  }
  const std::int64_t rows = target.numel(), classes = logits.size(-1);
  const at::Tensor flat = target.reshape({rows});
  if (rows > 0) {
    const at::Tensor wrong =
        flat.ne(kIgnoredTarget).logical_and(flat.lt(0).logical_or(flat.ge(classes * group.size())));
    if (wrong.any().item<bool>())
      throw UsageError(str("cross entropy: a target is ", flat.masked_select(wrong)[0].item<std::int64_t>(),
                           ", and there are ", classes * group.size(), " classes"));
  }
  const bool low_precision = logits.scalar_type() == at::kHalf || logits.scalar_type() == at::kBFloat16;
  const at::Tensor wide = (low_precision ? logits.to(at::kFloat) : logits).reshape({rows, classes});
  return DividedCrossEntropy::apply(wide, flat, group);
}

}  // namespace rondo
