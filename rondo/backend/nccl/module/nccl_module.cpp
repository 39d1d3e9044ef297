// The module rondo_nccl.so: c10d's ProcessGroupNCCL as an engine. Compiled with USE_C10D_NCCL if libtorch has
// CUDA and the headers of NCCL and CUDA are found; no other file sees them.
#include <dlfcn.h>
#include <nccl.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/cuda.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "rondo/backend/engine/module.h"
#include "rondo/backend/engine/nccl_module.h"
#include "rondo/backend/nccl/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

NcclVersion version_of_libtorch() {
  const std::uint64_t version = torch::cuda::nccl::version();
  return {static_cast<int>(version >> 32), static_cast<int>(version >> 16 & 0xffff),
          static_cast<int>(version & 0xffff)};
}

// Returns the version of the loaded library, or `otherwise` if NCCL is linked into libtorch statically.
NcclVersion version_of_library(const NcclVersion& otherwise) {
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
  int code = 0;
  return ask != nullptr && ask(&code) == 0 ? nccl_version_of(code) : otherwise;
}

// A process group that a DeviceWatch may abort with operations in flight. By default libtorch's watchdog
// would then end the process, see TORCH_NCCL_ASYNC_ERROR_HANDLING.
class AbortableProcessGroup final : public c10d::ProcessGroupNCCL {
 public:
  AbortableProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                        const c10::intrusive_ptr<Options>& options)
      : ProcessGroupNCCL(store, rank, size, options) {
    asyncErrorHandling_ = c10d::CleanUpOnly;  // before the first operation, when the watchdog reads it
  }
};

c10::intrusive_ptr<c10d::Backend> make_process_group(const BackendRequest& request) {
  using c10d::ProcessGroupNCCL;
  const NcclVersion libtorch = version_of_libtorch();
  if (const std::string mismatch =
          nccl_mismatch(nccl_version_of(NCCL_VERSION_CODE), libtorch, version_of_library(libtorch));
      !mismatch.empty())
    throw UsageError(str("backend nccl: ", mismatch));
  if (!torch::cuda::is_available()) throw UsageError("backend nccl: libtorch sees no GPU on this host");
  auto options = ProcessGroupNCCL::Options::create();
  // DeviceWatch ends operations at an earlier deadline than the engine, because its errors name ranks.
  options->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(request.timeout) + kDeviceGrace;
  options->global_ranks_in_group.assign(request.world_ranks.begin(), request.world_ranks.end());
  options->group_name = request.group_name;
  return c10::make_intrusive<AbortableProcessGroup>(request.store, request.rank, request.size, options);
}

}  // namespace
}  // namespace rondo

extern "C" void rondo_register_backends(rondo::BackendModule& module) {
  module.add("nccl", rondo::make_process_group, rondo::kNcclTraits);
}
