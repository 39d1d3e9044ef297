#pragma once

#include "rondo/collective/codec/codec.h"

// The codecs that rondo brings, one file each; the table in codec.cpp names them. `argument` is what stands
// behind the colon of the name.
namespace rondo::collective {

std::unique_ptr<Codec> make_none_codec(std::string_view argument);
std::unique_ptr<Codec> make_float16_codec(std::string_view argument);
std::unique_ptr<Codec> make_bfloat16_codec(std::string_view argument);
std::unique_ptr<Codec> make_int8_codec(std::string_view argument);
std::unique_ptr<Codec> make_top_k_codec(std::string_view argument);

// For codecs that take no argument: throws UsageError when there is one.
void refuse_argument(std::string_view codec, std::string_view argument);

// What every codec may rely on. Each throws Error naming the codec and the sizes: UsageError when a buffer
// that the caller provides has the wrong length, DataError when an encoding has.
void check_encode(const Codec& codec, std::span<const float> values, std::span<const std::byte> encoded,
                  std::span<const float> residual);
void check_decode(const Codec& codec, std::span<const std::byte> encoded, std::span<const float> values);

}  // namespace rondo::collective
