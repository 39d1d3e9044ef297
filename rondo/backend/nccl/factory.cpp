#include "rondo/backend/nccl/factory.h"

#include "rondo/backend/engine/module.h"
#include "rondo/backend/engine/nccl_module.h"
#include "rondo/base/error.h"
#include "rondo/base/module_path.h"
#include "rondo/device/cards.h"

namespace rondo {

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request) {
  const std::string path = find_module(kNcclModule);
  if (path.empty()) throw UsageError(kNoNccl);
  load_cuda();  // before the module, which needs it and may not know where it lies
  return load_backend(path, "nccl").factory(request);
}

}  // namespace rondo
