#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::control {

inline constexpr const char* kSecretFileVariable = "RONDO_SECRET_FILE";
inline constexpr const char* kSecretDescriptorVariable = "RONDO_SECRET_FD";

// What the processes of a job know and nobody else: 32 random bytes, and the CURVE keys that follow from
// them. A value; never written to a log.
class JobSecret {
 public:
  // `text` is 64 hexadecimal digits, with blanks or line ends around. `origin` says where it comes from, for
  // messages. Throws UsageError naming `origin` and how long the text is, never the text.
  static JobSecret parse(std::string_view text, std::string origin);
  // Throws UsageError naming the path and its mode when others than the owner may open it, DataError when it
  // cannot be read.
  static JobSecret from_file(const std::filesystem::path& path);
  // `descriptor` is read from its beginning and stays open.
  static JobSecret from_descriptor(int descriptor);
  // By RONDO_SECRET_FILE or RONDO_SECRET_FD, as `lookup` gives them; empty when neither is set. Throws
  // UsageError when both are.
  using Lookup = std::function<std::optional<std::string>(std::string_view variable)>;
  static std::optional<JobSecret> find(const Lookup& lookup);
  // The same; throws UsageError saying how to give one when neither is set.
  static JobSecret require(const Lookup& lookup);
  // New random bytes of the kernel.
  static JobSecret make();

  const std::string& origin() const { return origin_; }
  // 64 hexadecimal digits, as parse() reads them.
  std::string text() const;
  // Of the listener, in ZeroMQ's Z85: 40 characters.
  std::string secret_key() const;
  std::string public_key() const;

 private:
  JobSecret(std::array<std::uint8_t, 32> bytes, std::string origin)
      : bytes_(bytes), origin_(std::move(origin)) {}
  std::array<std::uint8_t, 32> bytes_;
  std::string origin_;
};

}  // namespace rondo::control
