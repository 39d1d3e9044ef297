#include "rondo/nn/parallel_cross_entropy.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/parallel_communication.h"

namespace rondo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class DividedCrossEntropy : public torch::autograd::Function<DividedCrossEntropy> {
 public:
  // `logits` [rows, classes of this rank], `target` [rows].
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            const Group& group) {
    const std::int64_t classes = logits.size(1);
    at::Tensor largest = logits.amax(1);
    reduce(largest, group, ReduceOp::MAX);
    at::Tensor shares = logits - largest.unsqueeze(1);  // on the way to the softmax
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
    // Softmax, less one at the target; nothing in ignored rows.
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
