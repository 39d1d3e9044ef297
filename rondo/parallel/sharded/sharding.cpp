#include "rondo/parallel/sharded/sharding.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

Sharding parse_sharding(std::string_view name, std::string_view where) {
  for (const Sharding sharding : cost::kStrategies) {
    if (name == cost::name(sharding)) return sharding;
  }
  if (name == "fsdp") return Sharding::zero3;
  throw UsageError(str(where, ": unknown strategy '", name,
                       "'; a unit may have ddp, zero1, zero2, zero3 (fsdp) or zero3_keep"));
}

}  // namespace rondo
