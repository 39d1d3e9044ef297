#include "rondo/format/checksum.h"

#include <xxhash.h>

#include <array>
#include <cstdint>
#include <new>
#include <string_view>

namespace rondo {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  constexpr std::string_view digits = "0123456789abcdef";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace

Checksum::Checksum() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void Checksum::update(std::span<const std::byte> data) {
  if (!data.empty()) XXH3_128bits_update(state_.get(), data.data(), data.size());
}

std::string Checksum::hex() const { return to_hex(XXH3_128bits_digest(state_.get())); }

std::string checksum_hex(std::span<const std::byte> data) {
  return to_hex(XXH3_128bits(data.data(), data.size()));
}

}  // namespace rondo
