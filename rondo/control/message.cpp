#include "rondo/control/message.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::control {

std::string_view MessageReader::take(std::size_t size, std::string_view field) {
  if (size > rest_.size()) {
    throw DataError(str("a message from ", from_, " ends in its field '", field, "': ", size,
                        " bytes are needed, ", rest_.size(), " are left"));
  }
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

std::string_view MessageReader::text(std::string_view field, std::size_t longest) {
  const auto size = number<std::uint64_t>(field);
  if (size > longest) {
    throw DataError(str("a message from ", from_, " says that its field '", field, "' has ", size,
                        " bytes; at most ", longest, " are allowed"));
  }
  return take(static_cast<std::size_t>(size), field);
}

std::span<const std::byte> MessageReader::bytes(std::string_view field, std::size_t longest) {
  const std::string_view view = text(field, longest);
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}

void MessageReader::end() {
  if (rest_.empty()) return;
  throw DataError(str("a message from ", from_, " has ", rest_.size(), " bytes behind its last field"));
}

void MessageReader::refuse_range(std::string_view field, const std::string& value, const std::string& least,
                                 const std::string& most) const {
  throw DataError(str("a message from ", from_, ": its field '", field, "' is ", value,
                      ", which is not from ", least, " to ", most));
}

}  // namespace rondo::control
