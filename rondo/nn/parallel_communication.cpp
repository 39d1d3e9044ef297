#include "rondo/nn/parallel_communication.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

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
  if (sum.numel() > 0) all_reduce(sum, group);  // a batch without samples has no elements, on any rank
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

// Keeps the group and the clock of a forward pass in the graph until its backward pass.
struct ForwardPass : torch::CustomClassHolder {
  explicit ForwardPass(Group g) : group(std::move(g)) {}
  const Group group;
  const CommunicationClock clock = communication_clock();
};

using Operation = at::Tensor (*)(const at::Tensor&, std::int64_t, const Group&);

at::Tensor nothing(const at::Tensor& input, std::int64_t, const Group&) { return input.alias(); }
at::Tensor sum(const at::Tensor& input, std::int64_t, const Group& group) { return summed(input, group); }

// Two operations of which the second is the first one's derivative.
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

}  // namespace rondo
