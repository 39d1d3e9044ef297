#include "rondo/strategy/registry.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/one_device.h"

namespace rondo {

void refuse_options_of_units(const std::string& strategy, const StrategyOptions& options) {
  const auto refuse = [&](const char* what, const char* remedy) {
    throw UsageError(str(what, " is a matter of units, which strategy ", strategy,
                         " does not know: use zero1, zero2, zero3, hsdp or a plan", remedy));
  };
  if (options.mixed_precision != MixedPrecisionPolicy{}) {
    refuse("a mixed precision policy", ", or opt levels (--amp), which any strategy takes");
  }
  if (options.reshard_ranks != 0) refuse("reshard_after_forward", "");
  if (options.offload.any()) refuse("offload", "");
}

void StrategyRegistry::add(std::string name, std::string summary, StrategyFactory factory) {
  entries_[std::move(name)] = {std::move(summary), std::move(factory)};
}

void StrategyRegistry::add_alias(const std::string& alias, const std::string& name) {
  aliases_[alias] = resolve(name);
}

const std::string& StrategyRegistry::resolve(const std::string& name) const {
  const auto alias = aliases_.find(name);
  const auto entry = entries_.find(alias == aliases_.end() ? name : alias->second);
  if (entry != entries_.end()) return entry->first;
  std::vector<std::string> known = names();
  for (const auto& [other, target] : aliases_) known.push_back(str(other, " (", target, ")"));
  throw UsageError(str("unknown strategy '", name, "'; known are: ", join(known, ", ")));
}

std::unique_ptr<Strategy> StrategyRegistry::make(const std::string& name, const Context& context,
                                                 const StrategyOptions& options) const {
  return entries_.at(resolve(name)).factory(context, options);
}

std::vector<std::string> StrategyRegistry::names() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : entries_) result.push_back(name);
  return result;
}

const std::string& StrategyRegistry::summary(const std::string& name) const {
  return entries_.at(resolve(name)).summary;
}

StrategyRegistry local_strategies() {
  StrategyRegistry registry;
  registry.add("one_device", "one process, one device, no communication",
               [](const Context& context, const StrategyOptions& options) {
                 refuse_options_of_units("one_device", options);
                 return std::make_unique<OneDevice>(context);
               });
  return registry;
}

}  // namespace rondo
