#pragma once

#include <any>
#include <map>
#include <type_traits>
#include <typeindex>
#include <utility>

namespace rondo {

// Options structs of kinds of data, at most one of each type: TextOptions, ImageOptions, ... A kind looks at
// its own and at no others.
class KindOptions {
 public:
  KindOptions() = default;  // every kind has its defaults
  // Of the kinds that take this struct.
  template <class Options>
  requires(!std::is_same_v<Options, KindOptions>) KindOptions(Options options) {
    edit<Options>() = std::move(options);
  }

  // What was given, or the defaults.
  template <class Options>
  Options get() const {
    const auto found = structs_.find(typeid(Options));
    return found == structs_.end() ? Options() : std::any_cast<const Options&>(found->second);
  }
  // To be changed; begins with the defaults.
  template <class Options>
  Options& edit() {
    std::any& held = structs_[typeid(Options)];
    if (!held.has_value()) held = Options();
    return std::any_cast<Options&>(held);
  }

 private:
  std::map<std::type_index, std::any> structs_;
};

}  // namespace rondo
