#include "rondo/data/known_data.h"

#include "rondo/base/text.h"

namespace rondo {

std::string who_knows(const KnownData& known) {
  return known.source.empty() ? "the model" : str("the model (", known.source, ")");
}

std::string unknown_class(const KnownData& known, std::string_view label) {
  return str("label '", label, "', expected one of the classes that ", who_knows(known),
             " knows: ", join(known.class_names, ", "));
}

}  // namespace rondo
