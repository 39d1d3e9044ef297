#include "rondo/parallel/sharded/mapped_buffer.h"

#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/memory/tracked_memory.h"

namespace rondo {

at::Tensor map_buffer(const Group& group, int owner, std::int64_t elements,
                      const at::TensorOptions& options) {
  ExtendedBackend* const engine = group.extended();
  if (engine == nullptr || !group.traits().parameters_in_place) return {};
  at::Tensor own;
  std::optional<std::uint64_t> place;
  if (group.rank() == owner) {
    own = engine->allocateTensor(elements, options);
    place = engine->publish(own);
  }
  const nlohmann::json told =
      broadcast_object(place ? nlohmann::json(*place) : nlohmann::json(), group, owner);
  if (told.is_null()) return {};
  const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * options.dtype().itemsize();
  const std::uint64_t part = bytes / static_cast<std::uint64_t>(group.size());
  if (group.rank() == owner) {
    count_part(own, bytes - part * static_cast<std::uint64_t>(group.size() - 1));
    return own;
  }
  std::shared_ptr<MemoryCharge> charge;
  if (tracks_cpu_allocations())
    charge = std::make_shared<MemoryCharge>(MemoryCategory::parameters, Bytes{part});
  // The engine holds the mapping.
  return at::from_blob(
      engine->published(owner, told.get<std::uint64_t>()), {elements},
      [keeps_mapped = group.backend(), charge](void*) {}, options);
}

}  // namespace rondo
