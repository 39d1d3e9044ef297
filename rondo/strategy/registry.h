#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// A registry of strategies by name. It is a value, not a global: a program adds strategies to the registry
// that it passes on.
class StrategyRegistry {
 public:
  template <class Options>
  // Creates a strategy with its options.
  using Factory = std::function<std::unique_ptr<Strategy>(const Context&, const Options&)>;

  // Adds a strategy, or replaces one of the same name. Its declaration has its name and the fields of
  // `Options` that can be set by name. Throws Error if the declaration is for another struct.
  template <class Options>
  void add(Declaration declaration, Factory<Options> factory) {
    add(std::move(declaration), typeid(Options),
        [factory = std::move(factory)](const Context& context, const void* options) {
          return factory(context, *static_cast<const Options*>(options));
        });
  }
  // Adds a strategy without options.
  void add(Declaration declaration, std::function<std::unique_ptr<Strategy>(const Context&)> factory);

  // Creates a strategy with options as texts, or with the defaults. Throws UsageError for an unknown `name`,
  // listing the known ones, and for an unknown option or an invalid value, naming it.
  std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                 const OptionValues& values = {}) const;
  // Creates a strategy with its own options struct (DdpStrategyOptions, ShardedOptions, ...). Throws
  // UsageError if the strategy takes another struct.
  template <class Options>
  std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                 const Options& options) const {
    return make(name, context, typeid(Options), &options);
  }
  // Returns the strategy's options struct with these texts applied, for further changes. Throws UsageError as
  // make() does.
  template <class Options>
  Options read(const std::string& name, const OptionValues& values) const {
    check_type(name, typeid(Options));
    return *static_cast<const Options*>(declaration(name).options.read(values).get());
  }

  // Returns the name that `name` refers to (itself, unless it is an alias). Throws as make() does.
  const std::string& resolve(const std::string& name) const;
  // Returns the declaration given to add(). Throws as make() does.
  const Declaration& declaration(const std::string& name) const;

  // Returns names without aliases, sorted.
  std::vector<std::string> names() const;
  std::vector<Declaration> declarations() const;  // all declarations, in the order of names()

 private:
  using ErasedFactory = std::function<std::unique_ptr<Strategy>(const Context&, const void* options)>;
  struct Entry {
    Declaration declaration;
    ErasedFactory factory;
  };

  void add(Declaration declaration, std::type_index type, ErasedFactory factory);
  std::unique_ptr<Strategy> make(const std::string& name, const Context& context, std::type_index type,
                                 const void* options) const;
  void check_type(const std::string& name, std::type_index type) const;

  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> aliases_;
};

// Returns a registry with default and one_device. rondo/parallel/registry.h has all strategies.
StrategyRegistry local_strategies();

}  // namespace rondo
