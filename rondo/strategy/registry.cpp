#include "rondo/strategy/registry.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/one_device.h"
#include "rondo/strategy/one_device_options.h"

namespace rondo {

void StrategyRegistry::add(Declaration declaration, std::type_index type, ErasedFactory factory) {
  const std::string name = declaration.name;
  if (declaration.options.type() != type) {
    throw Error(str("strategy ", name, " declares options of ", type_name(declaration.options.type()),
                    ", and its factory takes ", type_name(type)));
  }
  for (const std::string& alias : declaration.aliases) aliases_[alias] = name;
  entries_[name] = {std::move(declaration), std::move(factory)};
}

void StrategyRegistry::add(Declaration declaration,
                           std::function<std::unique_ptr<Strategy>(const Context&)> factory) {
  add(std::move(declaration), typeid(NoOptions),
      [factory = std::move(factory)](const Context& context, const void*) { return factory(context); });
}

const std::string& StrategyRegistry::resolve(const std::string& name) const {
  const auto alias = aliases_.find(name);
  const auto entry = entries_.find(alias == aliases_.end() ? name : alias->second);
  if (entry != entries_.end()) return entry->first;
  std::vector<std::string> known = names();
  for (const auto& [other, target] : aliases_) known.push_back(str(other, " (", target, ")"));
  throw UsageError(str("unknown strategy '", name, "'; known are: ", join(known, ", ")));
}

const Declaration& StrategyRegistry::declaration(const std::string& name) const {
  return entries_.at(resolve(name)).declaration;
}

std::unique_ptr<Strategy> StrategyRegistry::make(const std::string& name, const Context& context,
                                                 const OptionValues& values) const {
  const Entry& entry = entries_.at(resolve(name));
  return entry.factory(context, entry.declaration.options.read(values).get());
}

std::unique_ptr<Strategy> StrategyRegistry::make(const std::string& name, const Context& context,
                                                 std::type_index type, const void* options) const {
  check_type(name, type);
  return entries_.at(resolve(name)).factory(context, options);
}

void StrategyRegistry::check_type(const std::string& name, std::type_index type) const {
  const std::type_index own = declaration(name).options.type();
  if (own == type) return;
  throw UsageError(str("strategy ", name, " takes ", type_name(own), ", not ", type_name(type)));
}

std::vector<std::string> StrategyRegistry::names() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : entries_) result.push_back(name);
  return result;
}

std::vector<Declaration> StrategyRegistry::declarations() const {
  std::vector<Declaration> result;
  for (const auto& [name, entry] : entries_) result.push_back(entry.declaration);
  return result;
}

StrategyRegistry local_strategies() {
  StrategyRegistry registry;
  registry.add(default_declaration(),
               [](const Context& context) { return std::make_unique<DefaultStrategy>(context); });
  registry.add(one_device_declaration(),
               [](const Context& context) { return std::make_unique<OneDevice>(context); });
  return registry;
}

}  // namespace rondo
