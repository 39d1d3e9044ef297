#pragma once

#include <array>
#include <cstdint>

#include "rondo/data/image/decode.h"

namespace rondo {

// How colours become numbers: of a byte v of colour c, v * scale[c] + shift[c].
struct ColourScale {
  std::array<float, 3> scale{}, shift{};
};

// Writes the box of `part` as 3 x size x size numbers, colour by colour, row by row; mirrored if asked.
// Bilinear; where the box has more pixels than the result, each of these is a mean over a triangle of as many
// as fall on it (as Pillow's BILINEAR), and none outside the box counts.
void resample(const DecodedPart& part, int size, bool mirrored, const ColourScale& colours, float* result);

}  // namespace rondo
