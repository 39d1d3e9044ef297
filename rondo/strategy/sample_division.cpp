#include "rondo/strategy/sample_division.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"

namespace rondo {

Batch SampleDivision::own_part(const Batch& batch) const {
  if (!has_peers(sequence)) return batch;
  Batch own = batch;
  for (std::vector<at::Tensor>* const tensors : {&own.inputs, &own.targets}) {
    for (at::Tensor& tensor : *tensors) {
      if (tensor.dim() < 2)
        throw UsageError(str("a sequence is divided among ", sequence.size(),
                             " ranks, and the batch has a tensor [", join(tensor.sizes(), ", "),
                             "] without one; expected [samples, length]"));
      tensor = own_sequence(tensor, 1, sequence);
    }
  }
  return own;
}

int SampleDivision::ranks_of_sequence() const { return has_peers(sequence) ? sequence.size() : 1; }

LossFunction SampleDivision::loss_of_parts(LossFunction loss) const {
  return has_peers(classes) ? loss.of_divided_classes(classes) : loss;
}

std::vector<at::Tensor> SampleDivision::whole_outputs(std::vector<at::Tensor> outputs) const {
  if (has_peers(classes))
    outputs.front() = gather_from_ranks(outputs.front(), outputs.front().dim() - 1, classes);
  for (at::Tensor& output : outputs) {
    if (has_peers(sequence)) output = whole_sequence(output, 1, sequence);
  }
  return outputs;
}

}  // namespace rondo
