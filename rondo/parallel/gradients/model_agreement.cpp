#include "rondo/parallel/gradients/model_agreement.h"

#include <torch/types.h>
#include <torch/utils.h>
#include <xxhash.h>

#include <map>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// An offset that is a multiple of this can be viewed as any dtype.
constexpr std::int64_t kTensorAlignment = 16;

std::int64_t padded_bytes(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

void broadcast_chunk(const std::vector<at::Tensor>& tensors, std::int64_t bytes, const Group& group,
                     int root) {
  if (tensors.empty()) return;
  // Bytes, so that one message carries all dtypes, including those that an engine cannot reduce.
  at::Tensor flat = at::empty({bytes}, tensors.front().options().dtype(at::kByte).requires_grad(false));
  std::vector<at::Tensor> slices;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    slices.push_back(flat.narrow(0, offset, static_cast<std::int64_t>(tensor.nbytes()))
                         .view(tensor.scalar_type())
                         .view(tensor.sizes()));
    offset += padded_bytes(tensor);
  }
  if (group.rank() == root) {
    for (std::size_t i = 0; i < tensors.size(); ++i) slices[i].copy_(tensors[i]);
  }
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> message = {flat};
  group.backend()->broadcast(message, options)->wait();
  if (group.rank() != root) {
    // variable_data() has its own version counter, so autograd does not see the in-place change.
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].variable_data().copy_(slices[i]);
  }
}

}  // namespace

void broadcast_coalesced(const std::vector<at::Tensor>& tensors, const Group& group, int root) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  constexpr std::int64_t chunk_limit = 25 << 20;
  std::vector<at::Tensor> chunk;
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    if (!chunk.empty() &&
        (bytes + padded_bytes(tensor) > chunk_limit || chunk.front().device() != tensor.device())) {
      broadcast_chunk(chunk, bytes, group, root);
      chunk.clear();
      bytes = 0;
    }
    chunk.push_back(tensor.detach());
    bytes += padded_bytes(tensor);
  }
  broadcast_chunk(chunk, bytes, group, root);
}

namespace {

// Describes two parameters on devices of different types; empty if all are on one type. `by_type` omits the
// device's index, which may differ between ranks.
std::string mixed_devices(const ModelTensors& tensors, bool by_type) {
  const auto name = [&](const ModelTensor& entry) {
    const c10::Device device = entry.tensor.device();
    return by_type ? c10::Device(device.type()).str() : device.str();
  };
  for (const ModelTensor& entry : tensors.parameters) {
    const ModelTensor& first = tensors.parameters.front();
    if (entry.tensor.device().type() == first.tensor.device().type()) continue;
    return str("parameter '", first.name, "' on ", name(first), " and parameter '", entry.name, "' on ",
               name(entry));
  }
  return {};
}

// Lists the items that must be equal on all ranks, one line per item.
std::vector<std::string> describe(const ModelTensors& tensors, const std::vector<std::string>& options,
                                  const std::vector<ModelTensor>& sparse) {
  std::vector<std::string> lines;
  for (const std::string& option : options) lines.push_back("option " + option);
  for (const ModelTensor& entry : tensors.parameters) {
    lines.push_back(str("parameter '", entry.name, "' ", describe_shape(entry.tensor),
                        entry.tensor.requires_grad() ? "" : " without requires_grad"));
  }
  for (const ModelTensor& entry : sparse) lines.push_back(str("sparse gradients of '", entry.name, "'"));
  for (const ModelTensor& entry : tensors.buffers) {
    lines.push_back(str("buffer '", entry.name, "' ", describe_shape(entry.tensor)));
  }
  if (std::string mixed = mixed_devices(tensors, /*by_type=*/true); !mixed.empty())
    lines.push_back(std::move(mixed));
  return lines;
}

}  // namespace

void verify_same_model(const ModelTensors& tensors, const std::vector<std::string>& options,
                       const Group& group, const std::vector<ModelTensor>& sparse) {
  const std::vector<nlohmann::json> all = all_gather_object(describe(tensors, options, sparse), group);
  std::size_t longest = 0;
  for (const nlohmann::json& lines : all) longest = std::max(longest, lines.size());
  const auto line = [&](std::size_t rank, std::size_t item) {
    return item < all[rank].size() ? all[rank][item].get<std::string>() : std::string("nothing more");
  };
  for (std::size_t item = 0; item < longest; ++item) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (line(rank, item) == line(0, item)) continue;
      throw MismatchError(
          str("the model is not the same on all ranks of group '", group.name(),
              "'; first difference: rank 0 has ", line(0, item), ", rank ", rank, " has ", line(rank, item),
              ". Build the same model with the same options on every rank."),
          {static_cast<int>(rank)});
    }
  }
  if (const std::string mixed = mixed_devices(tensors, /*by_type=*/false); !mixed.empty())
    throw UsageError(str("the model has ", mixed, "; move all of it to one device: model->to(device)"));
}

void verify_same_hook(const std::string& name, const Group& group) {
  const std::vector<nlohmann::json> names = all_gather_object(name, group);
  for (std::size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    throw MismatchError(
        str("the communication hook is not the same on all ranks of group '", group.name(), "': rank 0 has '",
            names[0].get<std::string>(), "', rank ", rank, " has '", names[rank].get<std::string>(), "'"),
        {static_cast<int>(rank)});
  }
}

void verify_same_values(const std::vector<ModelTensor>& parameters, const std::string& when,
                        const Group& group) {
  if (group.size() == 1 || parameters.empty()) return;
  const auto count = static_cast<std::int64_t>(parameters.size());
  // Each rank fills its own row, so the sum holds the hashes of all ranks.
  at::Tensor table = at::zeros({group.size(), count}, at::kLong);
  {
    auto rows = table.accessor<std::int64_t, 2>();
    for (std::int64_t i = 0; i < count; ++i) {
      const at::Tensor bytes = parameters[static_cast<std::size_t>(i)].tensor.detach().cpu().contiguous();
      rows[group.rank()][i] = static_cast<std::int64_t>(XXH3_64bits(bytes.const_data_ptr(), bytes.nbytes()));
    }
  }
  all_reduce(table, group);
  const auto rows = table.accessor<std::int64_t, 2>();
  std::vector<std::int64_t> different;
  for (std::int64_t i = 0; i < count; ++i) {
    bool equal = true;
    for (int rank = 1; rank < group.size(); ++rank) equal = equal && rows[rank][i] == rows[0][i];
    if (!equal) different.push_back(i);
  }
  if (different.empty()) return;

  const std::int64_t first = different.front();
  std::map<std::int64_t, std::vector<int>> ranks_by_hash;
  for (int rank = 0; rank < group.size(); ++rank) ranks_by_hash[rows[rank][first]].push_back(rank);
  auto largest = ranks_by_hash.begin();
  for (auto it = ranks_by_hash.begin(); it != ranks_by_hash.end(); ++it) {
    const bool more = it->second.size() > largest->second.size();
    const bool tie =
        it->second.size() == largest->second.size() && it->second.front() < largest->second.front();
    if (more || tie) largest = it;
  }
  std::vector<int> deviating;
  for (const auto& [hash, ranks] : ranks_by_hash) {
    if (hash != largest->first) deviating.insert(deviating.end(), ranks.begin(), ranks.end());
  }
  std::sort(deviating.begin(), deviating.end());
  throw MismatchError(
      str("parameters are no longer the same on all ranks of group '", group.name(), "' ", when, ": '",
          parameters[static_cast<std::size_t>(first)].name, "' on rank ", join(deviating, ", "),
          " differs from rank ", join(largest->second, ", "), " (", different.size(), " of ", count,
          " parameters differ). Common causes: different optimizer settings, a step that only some ranks "
          "made, "
          "or a rank that changes parameters by itself."),
      deviating);
}

}  // namespace rondo
