#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// Strategies by name. A value, not a global: a program adds its own to the registry that it hands on.
class StrategyRegistry {
 public:
  template <class Options>
  // Makes a strategy with its options.
  using Factory = std::function<std::unique_ptr<Strategy>(const Context&, const Options&)>;

  // Adds a strategy; one of the same name is replaced. Its declaration says what it is called, and which
  // fields of `Options` can be set by name; it must be of that struct, or an Error says so.
  template <class Options>
  void add(Declaration declaration, Factory<Options> factory) {
    add(std::move(declaration), typeid(Options),
        [factory = std::move(factory)](const Context& context, const void* options) {
          return factory(context, *static_cast<const Options*>(options));
        });
  }
  // The same for one without options.
  void add(Declaration declaration, std::function<std::unique_ptr<Strategy>(const Context&)> factory);

  // Makes a strategy with options as texts, or with the defaults. Throws UsageError: listing the known names
  // when `name` is not one of them, naming an option that the strategy lacks, or a value that cannot be.
  std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                 const OptionValues& values = {}) const;
  // Makes a strategy with its own options struct (DdpStrategyOptions, ShardedOptions, ...). Throws UsageError
  // when it takes another.
  template <class Options>
  std::unique_ptr<Strategy> make(const std::string& name, const Context& context,
                                 const Options& options) const {
    return make(name, context, typeid(Options), &options);
  }
  // Its options struct with these texts in it, to be completed by hand. Throws UsageError as make() does.
  template <class Options>
  Options read(const std::string& name, const OptionValues& values) const {
    check_type(name, typeid(Options));
    return *static_cast<const Options*>(declaration(name).options.read(values).get());
  }

  // The name that `name` stands for (itself, unless it is an alias); throws as make() does.
  const std::string& resolve(const std::string& name) const;
  // What add() was told of it; throws as make() does.
  const Declaration& declaration(const std::string& name) const;

  // Names without aliases, sorted, and what add() was told about all.
  std::vector<std::string> names() const;
  std::vector<Declaration> declarations() const;  // what add() was told, in the order of names()

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

// A registry with default and one_device. rondo/parallel/registry.h has them all.
StrategyRegistry local_strategies();

}  // namespace rondo
