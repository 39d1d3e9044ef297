#include "rondo/parallel/replicas/replica_engines.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "rondo/backend/context.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/nccl_module.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr const char* kNcclEngine = "nccl";

// Adds up one pack, whose tensors have one dtype.
void all_reduce_pack(c10d::Backend& backend, const std::vector<at::Tensor>& pack) {
  std::vector<at::Tensor> flat;
  if (pack.size() == 1 && pack.front().is_contiguous()) {
    flat = pack;
  } else {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& tensor : pack) pieces.push_back(tensor.reshape({-1}));
    flat = {at::cat(pieces)};
  }
  backend.allreduce(flat)->wait();
  if (flat.front().is_same(pack.front())) return;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : pack) {
    tensor.copy_(flat.front().narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

std::string why_no_nccl() { return have_nccl() ? std::string() : str("; ", kNoNccl); }

}  // namespace

ReplicaEngines::ReplicaEngines(ReplicaThreads& threads, const std::string& engine, Duration timeout)
    : communicators_(static_cast<std::size_t>(threads.size())) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  BackendRequest request;
  request.group_name = "replicas";
  request.size = threads.size();
  request.world_ranks.resize(communicators_.size());
  std::iota(request.world_ranks.begin(), request.world_ranks.end(), 0);
  request.store = store;
  request.timeout = timeout;
  threads.run([&](int replica) {
    BackendRequest own = request;
    own.rank = replica;
    communicators_[static_cast<std::size_t>(replica)] = make_communicator(engine, own);
  });
}

void ReplicaEngines::all_reduce(int replica, const std::vector<at::Tensor>& tensors, int num_packs) {
  const at::NoGradGuard no_grad;
  c10d::Backend& backend = *communicators_[static_cast<std::size_t>(replica)].backend;
  const std::size_t packs =
      num_packs == 0 ? tensors.size() : std::min(tensors.size(), static_cast<std::size_t>(num_packs));
  for (std::size_t i = 0; i < packs; ++i) {
    const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() * i / packs);
    const auto end = tensors.begin() + static_cast<std::ptrdiff_t>(tensors.size() * (i + 1) / packs);
    for (auto from = begin; from != end;) {
      const auto to = std::find_if(
          from, end, [&](const at::Tensor& tensor) { return tensor.scalar_type() != from->scalar_type(); });
      all_reduce_pack(backend, {from, to});
      from = to;
    }
  }
}

void require_cards(const std::vector<c10::Device>& devices, const std::string& what) {
  const auto cpu =
      std::find_if(devices.begin(), devices.end(), [](c10::Device each) { return each.is_cpu(); });
  if (cpu == devices.end()) return;
  throw UsageError(str(what, ": NCCL takes the memory of GPUs only, and replica ", cpu - devices.begin(),
                       " is on the CPU; give --device cuda, or leave the option out", why_no_nccl()));
}

void require_nccl(const Context& context, const std::string& what) {
  if (context.world_size() == 1 || split_engine(context.backend_name()).name == kNcclEngine) return;
  throw UsageError(str(what, ": the engine of this job is ", context.backend_name(),
                       "; give --device cuda and --backend nccl, with a GPU for each rank", why_no_nccl()));
}

}  // namespace rondo
