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

// The secret of a job's processes: 32 random bytes, and the CURVE keys derived from them. A value; never
// written to a log.
class JobSecret {
 public:
  // Parses 64 hexadecimal digits with optional whitespace around. `origin` names the source for messages.
  // Throws UsageError naming `origin` and the length of the text, never the text.
  static JobSecret parse(std::string_view text, std::string origin);
  // Reads a file. Throws UsageError naming the path and its mode if others than the owner may open it, and
  // DataError if it cannot be read.
  static JobSecret from_file(const std::filesystem::path& path);
  // Reads `descriptor` from its beginning and leaves it open.
  static JobSecret from_descriptor(int descriptor);
  // Reads the secret of RONDO_SECRET_FILE or RONDO_SECRET_FD, as `lookup` returns them; nullopt if neither is
  // set. Throws UsageError if both are.
  using Lookup = std::function<std::optional<std::string>(std::string_view variable)>;
  static std::optional<JobSecret> find(const Lookup& lookup);
  // Same as find(), but throws UsageError with instructions if neither is set.
  static JobSecret require(const Lookup& lookup);
  // Makes a secret of random bytes from the kernel.
  static JobSecret make();

  const std::string& origin() const { return origin_; }
  // Returns 64 hexadecimal digits, the input of parse().
  std::string text() const;
  // Return the listener's keys in ZeroMQ's Z85 encoding: 40 characters.
  std::string secret_key() const;
  std::string public_key() const;

 private:
  JobSecret(std::array<std::uint8_t, 32> bytes, std::string origin)
      : bytes_(bytes), origin_(std::move(origin)) {}
  std::array<std::uint8_t, 32> bytes_;
  std::string origin_;
};

}  // namespace rondo::control
