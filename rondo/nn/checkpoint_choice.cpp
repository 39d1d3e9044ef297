#include <algorithm>
#include <charconv>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/partition.h"

namespace rondo {
namespace {

// N of "every-N"; nothing for another text.
std::optional<std::int64_t> interval_of(std::string_view which) {
  constexpr std::string_view kPrefix = "every-";
  if (!which.starts_with(kPrefix)) return std::nullopt;
  which.remove_prefix(kPrefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (error != std::errc() || end != which.data() + which.size() || number < 1) {
    throw UsageError(
        str("checkpointing of activations: 'every-", which, "': expected a number of units, at least 1"));
  }
  return number;
}

bool is_inside(const UnitState& unit, const UnitState& outer) {
  return outer.name().empty() || unit.name().starts_with(outer.name() + ".");
}

std::vector<UnitState*> outermost(const std::vector<UnitState*>& units) {
  std::vector<UnitState*> result;  // outer units come first
  for (UnitState* unit : units) {
    if (std::none_of(result.begin(), result.end(),
                     [&](UnitState* outer) { return is_inside(*unit, *outer); }))
      result.push_back(unit);
  }
  return result;
}

std::vector<UnitState*> choose(const std::vector<UnitState*>& units, std::string_view which) {
  if (which == "all") return outermost(units);
  std::vector<UnitState*> chosen;
  if (const auto interval = interval_of(which)) {
    const std::vector<UnitState*> candidates = outermost(units);
    for (std::size_t i = 0; i < candidates.size(); i += static_cast<std::size_t>(*interval))
      chosen.push_back(candidates[i]);
    return chosen;
  }
  for (const std::string& name : split(which, ',')) {
    const auto found = std::find_if(units.begin(), units.end(),
                                    [&](const UnitState* unit) { return unit->name() == trim(name); });
    if (found == units.end()) {
      std::vector<std::string> known;
      for (const UnitState* unit : units) known.push_back(unit->name());
      throw UsageError(str("checkpointing of activations: the model has no unit '", trim(name),
                           "'; its units are ", join(known, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace

std::vector<std::string> checkpoint_activations(const torch::nn::Module& model, std::string_view which) {
  const std::vector<UnitState*> units = units_of(model);
  std::vector<UnitState*> chosen;
  if (which != "none") {
    if (units.empty()) {
      throw UsageError(str("checkpointing of activations ('", which,
                           "'): the model has no units; wrap its layers' types in rondo::Unit"));
    }
    chosen = choose(units, which);
  }
  std::vector<std::string> names;
  for (UnitState* unit : units) {
    const bool on = std::find(chosen.begin(), chosen.end(), unit) != chosen.end();
    unit->set_checkpointed(on);
    if (on) names.push_back(unit->name());
  }
  return names;
}

}  // namespace rondo
