#include "rondo/parallel/sharded/mapped_buffer.h"

#include <torch/types.h>

#include "rondo/backend/accounting.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/native/native_backend.h"

namespace rondo {

at::Tensor map_buffer(const Group& group, int owner, std::int64_t elements,
                      const at::TensorOptions& options) {
  auto* native = dynamic_cast<NativeBackend*>(group.backend().get());
  if (native == nullptr) return {};
  const shared_memory::Engine& engine = native->engine();
  at::Tensor own;
  std::int64_t offset = -1;
  if (group.rank() == owner) {
    own = empty_registered({elements}, options);
    if (engine.registered(own.data_ptr())) {
      offset = static_cast<std::int64_t>(engine.registered_offset(own.data_ptr()));
      native->keep_until_closed(own);
    }
  }
  offset = broadcast_object(offset, group, owner).get<std::int64_t>();
  if (offset < 0) return {};
  const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * options.dtype().itemsize();
  const std::uint64_t part = bytes / static_cast<std::uint64_t>(group.size());
  if (group.rank() == owner) {
    count_part(own, bytes - part * static_cast<std::uint64_t>(group.size() - 1));
    return own;
  }
  std::shared_ptr<MemoryCharge> charge;
  if (accounts_cpu_allocations())
    charge = std::make_shared<MemoryCharge>(MemoryCategory::parameters, Bytes{part});
  // The engine holds the mapping.
  return at::from_blob(
      engine.registered_address(owner, static_cast<std::uint64_t>(offset)), {elements},
      [keeps_mapped = group.backend(), charge](void*) {}, options);
}

}  // namespace rondo
