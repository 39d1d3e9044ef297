#pragma once

#include <cstdint>
#include <string_view>

namespace rondo {

// Checks of a model's configuration; `model` ("gpt") begins the message. Each throws UsageError that names
// the entry, its value and what is allowed.

// Of what is made one by one there are at most kMostParts; every other size is at most kMostSizes.
constexpr std::int64_t kMostParts = 65536, kMostSizes = 0x7fffffff;

// 1 <= value <= most.
void check_positive(std::string_view model, std::string_view entry, std::int64_t value,
                    std::int64_t most = kMostSizes);
// 0 <= value < 1.
void check_probability(std::string_view model, std::string_view entry, double value);
// Every head gets an equal part of the width.
void check_heads(std::string_view model, std::int64_t width, std::int64_t heads);

}  // namespace rondo
