#include "rondo/parallel/sharded/sharding.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

std::string_view name_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::ddp:
      return "ddp";
    case Sharding::zero1:
      return "zero1";
    case Sharding::zero2:
      return "zero2";
    case Sharding::zero3:
      return "zero3";
    case Sharding::zero3_keep:
      return "zero3_keep";
  }
  return "";
}

Sharding parse_sharding(std::string_view name, std::string_view where) {
  for (const Sharding sharding : kShardings) {
    if (name == name_of(sharding)) return sharding;
  }
  if (name == "fsdp") return Sharding::zero3;
  throw UsageError(str(where, ": unknown strategy '", name,
                       "'; a unit may have ddp, zero1, zero2, zero3 (fsdp) or zero3_keep"));
}

}  // namespace rondo
