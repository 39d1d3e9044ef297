#include "rondo/control/secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/zeromq.h"

namespace rondo::control {
namespace {

constexpr std::size_t kKeyCharacters = 41;   // Z85 of 32 bytes and a terminating zero
constexpr std::size_t kLongestSecret = 256;  // bytes of a secret file, including whitespace

int hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int lower = std::tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string read_secret(int descriptor, const std::string& origin) {
  std::string text(kLongestSecret + 1, '\0');
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  if (count < 0) throw DataError(str(origin, ": cannot read the job's secret: ", errno_text(errno)));
  text.resize(static_cast<std::size_t>(count));
  return text;
}

}  // namespace

JobSecret JobSecret::parse(std::string_view text, std::string origin) {
  const std::string_view digits = trim(text);
  std::array<std::uint8_t, 32> bytes{};
  bool valid = digits.size() == 2 * bytes.size();
  for (std::size_t i = 0; valid && i < bytes.size(); ++i) {
    const int high = hexadecimal(digits[2 * i]), low = hexadecimal(digits[2 * i + 1]);
    valid = high >= 0 && low >= 0;
    if (valid) bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  if (!valid) {
    throw UsageError(str(origin, " holds no job secret: expected 64 hexadecimal digits, found ",
                         digits.size(), " characters",
                         digits.size() == 64 ? ", not all of them such digits" : "",
                         "; make one with 'openssl rand -hex 32'"));
  }
  return {bytes, std::move(origin)};
}

JobSecret JobSecret::from_file(const std::filesystem::path& path) {
  const OpenFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0)
    throw DataError(str("cannot open the job's secret ", path.string(), ": ", errno_text(errno)));
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw DataError(str("the job's secret ", path.string(), " is not a regular file"));
  if ((status.st_mode & 077U) != 0 || status.st_uid != geteuid()) {
    TextStream mode;
    mode << std::oct << (status.st_mode & 07777U);
    throw UsageError(str("the job's secret ", path.string(), " has mode 0", mode.str(),
                         " and belongs to user ", status.st_uid,
                         "; it must have mode 0600 and belong to user ", geteuid()));
  }
  return parse(read_secret(file.get(), path.string()), path.string());
}

JobSecret JobSecret::from_descriptor(int descriptor) {
  const std::string origin = str("descriptor ", descriptor);
  return parse(read_secret(descriptor, origin), origin);
}

std::optional<JobSecret> JobSecret::find(const Lookup& lookup) {
  const auto file = lookup(kSecretFileVariable);
  const auto descriptor = lookup(kSecretDescriptorVariable);
  if (file && descriptor) {
    throw UsageError(str(kSecretFileVariable, "=", *file, " and ", kSecretDescriptorVariable, "=",
                         *descriptor, " both name a job secret; unset one of them"));
  }
  if (file) return from_file(*file);
  if (!descriptor) return std::nullopt;
  const long long number = parse_integer(*descriptor, kSecretDescriptorVariable);
  if (number < 0 || number > 1'000'000)
    throw UsageError(str(kSecretDescriptorVariable, "=", *descriptor, " is not a descriptor"));
  return from_descriptor(static_cast<int>(number));
}

JobSecret JobSecret::require(const Lookup& lookup) {
  if (auto secret = find(lookup)) return std::move(*secret);
  throw UsageError(
      str("the job's secret is missing: ", kSecretFileVariable,
          " must name a file of mode 0600 with 64 hexadecimal digits, the same for all processes "
          "of the job (openssl rand -hex 32)"));
}

JobSecret JobSecret::make() {
  std::array<std::uint8_t, 32> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error(str("the kernel returned no random bytes: ", errno_text(errno)));
  return {bytes, "made here"};
}

std::string JobSecret::text() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  for (const std::uint8_t byte : bytes_) {
    result += kDigits[byte >> 4U];
    result += kDigits[byte & 15U];
  }
  return result;
}

std::string JobSecret::secret_key() const {
  std::array<char, kKeyCharacters> key{};
  zeromq().z85_encode(key.data(), bytes_.data(), bytes_.size());
  return key.data();
}

std::string JobSecret::public_key() const {
  std::array<char, kKeyCharacters> key{};
  if (zeromq().curve_public(key.data(), secret_key().c_str()) != 0)
    throw Error(str("ZeroMQ cannot create a CURVE key: ", zeromq().strerror(zeromq().last_error())));
  return key.data();
}

}  // namespace rondo::control
