#include "rondo/options/declaration.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

bool Declaration::is_called(const std::string& text) const {
  return text == name || std::find(aliases.begin(), aliases.end(), text) != aliases.end();
}

const Declaration* find_declaration(const std::vector<Declaration>& entries, const std::string& name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Declaration& entry) { return entry.is_called(name); });
  return found == entries.end() ? nullptr : &*found;
}

ServedWorker worker_of(const std::vector<Declaration>& strategies, const std::string& name) {
  const Declaration* const found = find_declaration(strategies, name);
  return found == nullptr ? ServedWorker::none : found->worker;
}

std::vector<std::string> takers_of(const std::vector<Declaration>& entries, const std::string& option) {
  std::vector<std::string> names;
  for (const Declaration& entry : entries) {
    if (entry.options.find(option) != nullptr) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void refuse_options_of_others(const std::vector<Declaration>& entries, const Declaration& chosen,
                              const std::string& flag, const std::string& shown, const OptionValues& given) {
  for (const auto& [name, value] : given) {
    const std::vector<std::string> takers = takers_of(entries, name);
    if (takers.empty() || chosen.options.find(name) != nullptr) continue;
    const OptionTable& table = find_declaration(entries, takers.front())->options;
    const Option& option = *table.find(name);
    if (!table.differs_from_default(option, value)) continue;
    throw UsageError(str(option.shown_name(), " has no effect with --", flag, " ", shown, "; it is for --",
                         flag, " ", list_with_or(takers), ": leave it out, or give that"));
  }
}

}  // namespace rondo
