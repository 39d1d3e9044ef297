#include "rondo/backend/hierarchical/failure_record.h"

#include <nlohmann/json.hpp>

namespace rondo::hierarchical {

FailureRecord::Failure FailureRecord::record(const Failure& failure) noexcept {
  try {
    const std::string text = nlohmann::json{
        {"ranks", failure.ranks},
        {"mismatch", failure.mismatch},
        {"what", failure.what}}.dump();
    const std::vector<std::uint8_t> present =
        store_->compareSet("hierarchical/failure", {}, std::vector<std::uint8_t>(text.begin(), text.end()));
    const nlohmann::json first = nlohmann::json::parse(present.begin(), present.end());
    return {first.at("ranks").get<std::vector<int>>(), first.at("mismatch").get<bool>(),
            first.at("what").get<std::string>()};
  } catch (...) {
    return failure;
  }
}

}  // namespace rondo::hierarchical
