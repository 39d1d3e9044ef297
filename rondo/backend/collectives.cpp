#include "rondo/backend/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "rondo/backend/native/native_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::vector<at::Tensor> empty_for_all(const at::Tensor& like, const Group& group) {
  std::vector<at::Tensor> tensors;
  for (int r = 0; r < group.size(); ++r) tensors.push_back(at::empty(like.sizes(), like.options()));
  return tensors;
}

void check_rank(int rank, const Group& group, const char* what) {
  if (rank < 0 || rank >= group.size()) {
    throw UsageError(
        str(what, " ", rank, " is not a rank of group '", group.name(), "', which has ", group.size()));
  }
}

}  // namespace

// Every operation works on data, not on the autograd graph: a leaf that requires grad may be written in
// place.

void all_reduce(at::Tensor& tensor, const Group& group, ReduceOp op) {
  if (auto* native = dynamic_cast<NativeBackend*>(group.backend().get())) {
    native->all_reduce_now(tensor, op);
    return;
  }
  std::vector<at::Tensor> tensors{tensor.detach()};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group.backend()->allreduce(tensors, options)->wait();
}

void broadcast(at::Tensor& tensor, const Group& group, int root) {
  check_rank(root, group, "root");
  std::vector<at::Tensor> tensors{tensor.detach()};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group.backend()->broadcast(tensors, options)->wait();
}

void reduce(at::Tensor& tensor, const Group& group, int root, ReduceOp op) {
  check_rank(root, group, "root");
  std::vector<at::Tensor> tensors{tensor.detach()};
  c10d::ReduceOptions options;
  options.rootRank = root;
  options.reduceOp = op;
  group.backend()->reduce(tensors, options)->wait();
}

std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group) {
  std::vector<at::Tensor> inputs{tensor.detach()};
  std::vector<std::vector<at::Tensor>> outputs{empty_for_all(tensor, group)};
  group.backend()->allgather(outputs, inputs)->wait();
  return outputs.front();
}

std::vector<at::Tensor> gather(const at::Tensor& tensor, const Group& group, int root) {
  check_rank(root, group, "root");
  std::vector<at::Tensor> inputs{tensor.detach()};
  std::vector<std::vector<at::Tensor>> outputs;
  if (group.rank() == root) outputs.push_back(empty_for_all(tensor, group));
  c10d::GatherOptions options;
  options.rootRank = root;
  group.backend()->gather(outputs, inputs, options)->wait();
  return outputs.empty() ? std::vector<at::Tensor>{} : outputs.front();
}

void scatter(at::Tensor& output, const std::vector<at::Tensor>& tensors, const Group& group, int root) {
  check_rank(root, group, "root");
  std::vector<at::Tensor> outputs{output.detach()};
  std::vector<std::vector<at::Tensor>> inputs;
  if (group.rank() == root) inputs.push_back(tensors);
  c10d::ScatterOptions options;
  options.rootRank = root;
  group.backend()->scatter(outputs, inputs, options)->wait();
}

at::Tensor reduce_scatter(const at::Tensor& tensor, const Group& group, ReduceOp op) {
  if (tensor.dim() == 0 || tensor.size(0) % group.size() != 0) {
    throw UsageError(rondo::str("reduce_scatter: the first dimension of ", tensor.sizes(),
                                " does not divide by the ", group.size(), " ranks of group '", group.name(),
                                "'"));
  }
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[0] /= group.size();
  at::Tensor output = at::empty(shape, tensor.options());
  at::Tensor input = tensor.detach();
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  group.backend()->_reduce_scatter_base(output, input, options)->wait();
  return output;
}

void all_to_all(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const Group& group) {
  const auto size = static_cast<std::size_t>(group.size());
  if (inputs.size() != size || outputs.size() != size) {
    throw UsageError(str("all_to_all: group '", group.name(), "' has ", size, " ranks, but there are ",
                         inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  // Engines of c10d differ in whether they take lists; all of them exchange one flat tensor with splits.
  std::vector<std::int64_t> input_splits;
  std::vector<std::int64_t> output_splits;
  std::vector<at::Tensor> flat_inputs;
  for (std::size_t r = 0; r < size; ++r) {
    input_splits.push_back(inputs[r].numel());
    output_splits.push_back(outputs[r].numel());
    flat_inputs.push_back(inputs[r].detach().reshape({-1}));
  }
  at::Tensor input = at::cat(flat_inputs);
  std::int64_t total = 0;
  for (const std::int64_t split : output_splits) total += split;
  at::Tensor output = at::empty({total}, outputs.front().options());
  // Engines may take the lists over.
  std::vector<std::int64_t> given_output_splits = output_splits;
  group.backend()->alltoall_base(output, input, given_output_splits, input_splits)->wait();
  const std::vector<at::Tensor> parts = output.split_with_sizes(output_splits);
  for (std::size_t r = 0; r < size; ++r) outputs[r].detach().copy_(parts[r].view(outputs[r].sizes()));
}

void send(const at::Tensor& tensor, const Group& group, int destination, int tag) {
  check_rank(destination, group, "destination");
  std::vector<at::Tensor> tensors{tensor.detach().contiguous()};
  group.backend()->send(tensors, destination, tag)->wait();
}

void recv(at::Tensor& tensor, const Group& group, int source, int tag) {
  check_rank(source, group, "source");
  std::vector<at::Tensor> tensors{tensor.detach()};
  group.backend()->recv(tensors, source, tag)->wait();
}

void barrier(const Group& group) { group.backend()->barrier()->wait(); }

}  // namespace rondo
