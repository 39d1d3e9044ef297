#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo {

// A size in bytes. A type of its own so that it is never mixed up with a count of elements.
struct Bytes {
  std::uint64_t count = 0;  // of bytes
  // By size.
  constexpr auto operator<=>(const Bytes&) const = default;
};

// The sum of two sizes.
constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
// What `a` has more than `b`, which is not the larger one.
constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
// `n` times 1024 bytes.
constexpr Bytes KiB(std::uint64_t n) { return {n << 10}; }
// `n` times 1024 KiB.
constexpr Bytes MiB(std::uint64_t n) { return {n << 20}; }
// `n` times 1024 MiB.
constexpr Bytes GiB(std::uint64_t n) { return {n << 30}; }

// Reads "25MiB", "1.5GiB", "64KiB", "100MB", "512B" or a plain number of bytes. KiB, MiB, GiB, TiB are powers
// of 1024; KB, MB, GB, TB powers of 1000; case does not matter. Throws UsageError that names `what`.
Bytes parse_bytes(std::string_view text, std::string_view what);

// "25.0 MiB"; plain bytes below 1 KiB ("512 B").
std::string to_string(Bytes bytes);

}  // namespace rondo
