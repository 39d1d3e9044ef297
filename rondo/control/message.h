#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace rondo::control {

template <class T>
concept MessageNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

// A writer of consecutive fields: numbers in this machine's representation, texts and bytes preceded by their
// length.
class MessageWriter {
 public:
  template <MessageNumber T>
  MessageWriter& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  MessageWriter& text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  MessageWriter& bytes(std::span<const std::byte> value) {
    return text({reinterpret_cast<const char*>(value.data()), value.size()});
  }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// A reader of MessageWriter's output from a process that may be of another version or malicious: nothing is
// read beyond the end, and every length is checked. Every method throws DataError naming the field, the bytes
// needed and the bytes left. Views point into the message.
class MessageReader {
 public:
  // `from` names the sender, for messages.
  MessageReader(std::string_view message, std::string from) : rest_(message), from_(std::move(from)) {}

  template <MessageNumber T>
  T number(std::string_view field) {
    T value{};
    std::memcpy(&value, take(sizeof value, field).data(), sizeof value);
    return value;
  }
  // Reads a number that must be from `least` to `most`.
  template <MessageNumber T>
  T number(std::string_view field, T least, T most) {
    const T value = number<T>(field);
    if (!(value >= least && value <= most)) {
      refuse_range(field, std::to_string(value), std::to_string(least), std::to_string(most));
    }
    return value;
  }
  std::string_view text(std::string_view field, std::size_t longest);
  std::span<const std::byte> bytes(std::string_view field, std::size_t longest);
  // Checks that the message has no more fields.
  void end();

 private:
  std::string_view take(std::size_t size, std::string_view field);
  [[noreturn]] void refuse_range(std::string_view field, const std::string& value, const std::string& least,
                                 const std::string& most) const;

  std::string_view rest_;
  std::string from_;
};

}  // namespace rondo::control
