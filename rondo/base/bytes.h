#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo {

// A size in bytes. A separate type, so that sizes are never confused with element counts.
struct Bytes {
  std::uint64_t count = 0;  // number of bytes
  // Compares by size.
  constexpr auto operator<=>(const Bytes&) const = default;
};

// Returns the sum of two sizes.
constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
// Returns the difference of two sizes. Requires `a` >= `b`.
constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
// Returns `n` times 1024 bytes.
constexpr Bytes KiB(std::uint64_t n) { return {n << 10}; }
// Returns `n` times 1024 KiB.
constexpr Bytes MiB(std::uint64_t n) { return {n << 20}; }
// Returns `n` times 1024 MiB.
constexpr Bytes GiB(std::uint64_t n) { return {n << 30}; }

// Parses "25MiB", "1.5GiB", "64KiB", "100MB", "512B" or a plain number of bytes. KiB, MiB, GiB and TiB are
// powers of 1024; KB, MB, GB and TB are powers of 1000. Case does not matter. Throws UsageError that names
// `what`.
Bytes parse_bytes(std::string_view text, std::string_view what);

// Returns text such as "25.0 MiB"; plain bytes below 1 KiB ("512 B").
std::string to_string(Bytes bytes);

}  // namespace rondo
