#include "rondo/backend/collectives.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <cstring>
#include <numeric>
#include <span>

#include "rondo/backend/blocking_options.h"
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

std::int64_t total(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

// Emulates all_to_all: every rank broadcasts its input, and each rank copies its parts. All tensors are flat,
// and all lists count elements.
void exchange_by_broadcasts(const at::Tensor& output, const at::Tensor& input,
                            const std::vector<std::int64_t>& receive, const std::vector<std::int64_t>& send,
                            const Group& group) {
  const std::int64_t ranks = group.size();
  at::Tensor sent = at::zeros({ranks, ranks}, at::kLong);  // [sender][receiver]
  for (std::int64_t to = 0; to < ranks; ++to)
    sent[group.rank()][to].fill_(send[static_cast<std::size_t>(to)]);
  sent = sent.to(group.traits().control_device());
  all_reduce(sent, group);
  sent = sent.cpu();
  std::int64_t place = 0;
  for (std::int64_t from = 0; from < ranks; ++from) {
    const at::Tensor row = sent[from];
    at::Tensor all =
        from == group.rank() ? input : at::empty({row.sum().item<std::int64_t>()}, input.options());
    if (all.numel() > 0) broadcast(all, group, static_cast<int>(from));
    const std::int64_t begin = row.narrow(0, 0, group.rank()).sum().item<std::int64_t>();
    const std::int64_t mine = receive[static_cast<std::size_t>(from)];
    output.narrow(0, place, mine).copy_(all.narrow(0, begin, mine));
    place += mine;
  }
}

}  // namespace

// Every operation acts on data, not on the autograd graph: a leaf that requires grad may be written in place.

void all_reduce(at::Tensor& tensor, const Group& group, ReduceOp op) {
  if (ExtendedBackend* const engine = group.extended()) {
    engine->all_reduce_now(tensor, op);
    return;
  }
  // Writes to a detached sparse tensor do not reach the original.
  std::vector<at::Tensor> tensors{tensor.is_sparse() ? tensor : tensor.detach()};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group.backend()->allreduce(tensors, options)->wait();
}

void broadcast(at::Tensor& tensor, const Group& group, int root) {
  check_rank(root, group, "root");
  std::vector<at::Tensor> tensors{tensor.detach()};
  auto options = blocking_options<c10d::BroadcastOptions>();
  options.rootRank = root;
  group.backend()->broadcast(tensors, options)->wait();
}

void reduce(at::Tensor& tensor, const Group& group, int root, ReduceOp op) {
  check_rank(root, group, "root");
  std::vector<at::Tensor> tensors{tensor.detach()};
  auto options = blocking_options<c10d::ReduceOptions>();
  options.rootRank = root;
  options.reduceOp = op;
  group.backend()->reduce(tensors, options)->wait();
}

std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group) {
  std::vector<at::Tensor> inputs{tensor.detach()};
  std::vector<std::vector<at::Tensor>> outputs{empty_for_all(tensor, group)};
  group.backend()->allgather(outputs, inputs, blocking_options<c10d::AllgatherOptions>())->wait();
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
  auto options = blocking_options<c10d::ReduceScatterOptions>();
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
  // Not all c10d engines take lists; all of them exchange one flat tensor with splits.
  std::vector<std::int64_t> input_splits;
  std::vector<std::int64_t> output_splits;
  std::vector<at::Tensor> flat_inputs;
  for (std::size_t r = 0; r < size; ++r) {
    input_splits.push_back(inputs[r].numel());
    output_splits.push_back(outputs[r].numel());
    flat_inputs.push_back(inputs[r].detach().reshape({-1}));
  }
  at::Tensor output = at::empty({total(output_splits)}, outputs.front().options());
  all_to_all_single(output, at::cat(flat_inputs), output_splits, input_splits, group);
  const std::vector<at::Tensor> parts = output.split_with_sizes(output_splits);
  for (std::size_t r = 0; r < size; ++r) outputs[r].detach().copy_(parts[r].view(outputs[r].sizes()));
}

void all_to_all_single(at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_rows,
                       const std::vector<std::int64_t>& input_rows, const Group& group) {
  const auto size = static_cast<std::size_t>(group.size());
  if (input_rows.size() != size || output_rows.size() != size || total(input_rows) != input.size(0) ||
      total(output_rows) != output.size(0)) {
    throw UsageError(str("all_to_all_single: group '", group.name(), "' has ", size, " ranks; rows [",
                         join(input_rows, ", "), "] of ", input.size(0), " are sent and [",
                         join(output_rows, ", "), "] of ", output.size(0), " received"));
  }
  // Splits count elements: a row may have any shape.
  const auto elements = [&](std::vector<std::int64_t> rows, const at::Tensor& tensor) {
    const std::int64_t row = c10::multiply_integers(tensor.sizes().slice(1));
    for (std::int64_t& each : rows) each *= row;
    return rows;
  };
  std::vector<std::int64_t> send = elements(input_rows, input), receive = elements(output_rows, output);
  at::Tensor from = input.detach().contiguous().view({input.numel()});
  const at::Tensor result = output.detach().view({output.numel()});
  if (!group.traits().all_to_all) return exchange_by_broadcasts(result, from, receive, send, group);
  // Engines treat empty tensors differently: a rank with one sends one extra element to itself.
  const auto self = static_cast<std::size_t>(group.rank());
  const bool pads = from.numel() == 0 || result.numel() == 0;
  at::Tensor to = result;
  const std::int64_t own_end = total(std::span(receive).first(self + 1));
  if (pads) {
    const std::int64_t place = total(std::span(send).first(self + 1));
    from = at::cat({from.narrow(0, 0, place), at::zeros({1}, from.options()),
                    from.narrow(0, place, from.numel() - place)});
    to = at::empty({result.numel() + 1}, result.options());
    ++send[self];
    ++receive[self];
  }
  // The engine may move tensors out of the lists.
  group.backend()->alltoall_base(to, from, receive, send)->wait();
  if (!pads) return;
  result.narrow(0, 0, own_end).copy_(to.narrow(0, 0, own_end));
  const std::int64_t rest = result.numel() - own_end;
  result.narrow(0, own_end, rest).copy_(to.narrow(0, own_end + 1, rest));
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

// Objects are sent as CBOR (RFC 8949), which keeps integers, floats and binary exactly.

namespace {

at::Tensor encode(const nlohmann::json& object) {
  const std::vector<std::uint8_t> bytes = nlohmann::json::to_cbor(object);
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

nlohmann::json decode(const at::Tensor& tensor, std::int64_t bytes) {
  const auto* begin = tensor.data_ptr<std::uint8_t>();
  return nlohmann::json::from_cbor(begin, begin + bytes);
}

at::Tensor size_of(const at::Tensor& tensor) { return at::tensor({tensor.numel()}, at::kLong); }

// An object's bytes, padded to the length of the longest one, because c10d gathers pieces of one size.
struct Padded {
  at::Tensor bytes;
  std::vector<std::int64_t> sizes;
};

Padded pad(const nlohmann::json& object, const Group& group) {
  const at::Tensor own = encode(object);
  Padded padded;
  std::int64_t longest = 0;
  for (const at::Tensor& size : all_gather(size_of(own), group)) {
    padded.sizes.push_back(size.item<std::int64_t>());
    longest = std::max(longest, padded.sizes.back());
  }
  padded.bytes = at::zeros({longest}, at::kByte);
  padded.bytes.narrow(0, 0, own.numel()).copy_(own);
  return padded;
}

std::vector<nlohmann::json> decode_all(const std::vector<at::Tensor>& tensors,
                                       const std::vector<std::int64_t>& sizes) {
  std::vector<nlohmann::json> objects;
  for (std::size_t r = 0; r < tensors.size(); ++r) objects.push_back(decode(tensors[r], sizes[r]));
  return objects;
}

}  // namespace

nlohmann::json broadcast_object(const nlohmann::json& object, const Group& group, int root) {
  const bool is_root = group.rank() == root;
  at::Tensor bytes = is_root ? encode(object) : at::empty({0}, at::kByte);
  at::Tensor size = size_of(bytes);
  broadcast(size, group, root);
  if (!is_root) bytes = at::empty({size.item<std::int64_t>()}, at::kByte);
  broadcast(bytes, group, root);
  return is_root ? object : decode(bytes, bytes.numel());
}

std::vector<nlohmann::json> all_gather_object(const nlohmann::json& object, const Group& group) {
  const Padded padded = pad(object, group);
  return decode_all(all_gather(padded.bytes, group), padded.sizes);
}

std::vector<nlohmann::json> gather_object(const nlohmann::json& object, const Group& group, int root) {
  const Padded padded = pad(object, group);
  return decode_all(gather(padded.bytes, group, root), padded.sizes);
}

}  // namespace rondo
