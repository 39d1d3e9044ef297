#pragma once

#include "rondo/collective/codec/codec.h"

// Factories of rondo's own codecs, one file each; the table in codec.cpp has their names. `argument` is the
// text after the colon of the name.
namespace rondo::collective {

std::unique_ptr<Codec> make_none_codec(std::string_view argument);
std::unique_ptr<Codec> make_float16_codec(std::string_view argument);
std::unique_ptr<Codec> make_bfloat16_codec(std::string_view argument);
std::unique_ptr<Codec> make_int8_codec(std::string_view argument);
std::unique_ptr<Codec> make_top_k_codec(std::string_view argument);

// Throws UsageError if a codec without arguments is given one.
void refuse_argument(std::string_view codec, std::string_view argument);

// Checks of every codec's arguments. Each throws Error naming the codec and the sizes: UsageError if a buffer
// of the caller has the wrong length, DataError if an encoding has.
void check_encode(const Codec& codec, std::span<const float> values, std::span<const std::byte> encoded,
                  std::span<const float> residual);
void check_decode(const Codec& codec, std::span<const std::byte> encoded, std::span<const float> values);

}  // namespace rondo::collective
