#include "rondo/nn/shard_address.h"

namespace rondo {

nlohmann::json address_to_json(const Shard& shard) {
  nlohmann::json address{
      {"name", shard.name}, {"full", shard.global_sizes}, {"offsets", shard.offsets}, {"sizes", shard.sizes}};
  if (shard.within) address["within"] = {shard.within->begin, shard.within->end};
  if (shard.blocks != 1) address["blocks"] = shard.blocks;
  return address;
}

Shard address_from_json(const nlohmann::json& address) {
  using Sizes = std::vector<std::int64_t>;
  Shard shard{.name = address.at("name").get<std::string>(),
              .global_sizes = address.at("full").get<Sizes>(),
              .offsets = address.at("offsets").get<Sizes>(),
              .sizes = address.at("sizes").get<Sizes>(),
              .blocks = address.value("blocks", std::int64_t{1})};
  if (const auto within = address.find("within"); within != address.end())
    shard.within = FlatRange{within->at(0).get<std::int64_t>(), within->at(1).get<std::int64_t>()};
  return shard;
}

}  // namespace rondo
