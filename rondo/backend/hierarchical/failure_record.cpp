#include "rondo/backend/hierarchical/failure_record.h"

#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"

namespace rondo::hierarchical {

FailureRecord::Failure FailureRecord::record(const Failure& failure) noexcept {
  try {
    const std::string text = nlohmann::json{
        {"ranks", failure.ranks},
        {"mismatch", failure.mismatch},
        {"what", failure.what}}.dump();
    const std::vector<std::uint8_t> present =
        store_->compareSet("hierarchical/failure", {}, std::vector<std::uint8_t>(text.begin(), text.end()));
    const nlohmann::json first =
        parse_json_strict(std::string(present.begin(), present.end()), "the first failure");
    return {first.at("ranks").get<std::vector<int>>(), first.at("mismatch").get<bool>(),
            first.at("what").get<std::string>()};
  } catch (...) {
    return failure;
  }
}

std::exception_ptr FailureRecord::first(const std::exception_ptr& error) noexcept {
  Failure own;
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError& e) {
    own = {e.ranks(), dynamic_cast<const MismatchError*>(&e) != nullptr, e.what()};
  } catch (const std::exception& e) {
    own.what = e.what();
  }
  const Failure first = record(own);
  if (first.what == own.what) return error;
  if (first.mismatch) return std::make_exception_ptr(MismatchError(first.what, first.ranks));
  return std::make_exception_ptr(PeerLostError(first.what, first.ranks));
}

}  // namespace rondo::hierarchical
