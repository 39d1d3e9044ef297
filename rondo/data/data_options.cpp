#include "rondo/data/data_options.h"

#include <algorithm>
#include <utility>

#include "rondo/base/text.h"

namespace rondo {

std::string source_of_properties(const KnownData& known) {
  return known.source.empty() ? "the model" : str("the model (", known.source, ")");
}

std::string unknown_class(const KnownData& known, std::string_view label) {
  return str("label '", label, "', expected one of the classes that ", source_of_properties(known),
             " knows: ", join(known.class_names, ", "));
}

std::vector<Declaration> declared_data_kinds() {
  std::vector<Declaration> all;
  for_each_data_kind([&](auto kind) {
    for (Declaration& each : decltype(kind)::declarations()) all.push_back(std::move(each));
  });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

KindOptions read_kind_options(const OptionValues& values) {
  KindOptions result;
  for_each_data_kind([&](auto kind) {
    using Kind = decltype(kind);
    auto& own = result.edit<typename Kind::Options>();
    for (const Declaration& declared : Kind::declarations()) {
      for (const Option& option : declared.options.options()) {
        if (const auto given = values.find(option.name); given != values.end())
          option.read(&own, given->second);
      }
    }
  });
  return result;
}

}  // namespace rondo
