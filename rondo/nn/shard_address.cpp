#include "rondo/nn/shard_address.h"

#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr const char* kWhere = "the address";

}  // namespace

nlohmann::json address_to_json(const Shard& shard) {
  nlohmann::json address{
      {"name", shard.name}, {"full", shard.global_sizes}, {"offsets", shard.offsets}, {"sizes", shard.sizes}};
  if (shard.within) address["within"] = {shard.within->begin, shard.within->end};
  if (shard.blocks != 1) address["blocks"] = shard.blocks;
  return address;
}

Shard address_from_json(const nlohmann::json& address) {
  const auto sizes = [&](const char* key) {
    std::vector<std::int64_t> result;
    for (const nlohmann::json& size : json_list(json_member(address, key, kWhere), json_place(kWhere, key)))
      result.push_back(json_integer(size, json_place(kWhere, key)));
    return result;
  };
  Shard shard{.name = json_text(json_member(address, "name", kWhere), json_place(kWhere, "name")),
              .global_sizes = sizes("full"),
              .offsets = sizes("offsets"),
              .sizes = sizes("sizes")};
  if (const auto blocks = address.find("blocks"); blocks != address.end())
    shard.blocks = json_integer(*blocks, json_place(kWhere, "blocks"));
  if (!address.contains("within")) return shard;
  const std::vector<std::int64_t> within = sizes("within");
  if (within.size() != 2)
    throw DataError(str(json_place(kWhere, "within"), " is not a beginning and an end"));
  shard.within = FlatRange{within[0], within[1]};
  return shard;
}

}  // namespace rondo
