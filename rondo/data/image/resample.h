#pragma once

#include <array>
#include <cstdint>

#include "rondo/data/image/decode.h"

namespace rondo {

// Normalisation of colours: a byte v of colour c becomes v * scale[c] + shift[c].
struct ColourScale {
  std::array<float, 3> scale{}, shift{};
};

// Writes the box of `part` as 3 x size x size numbers, colour by colour, row by row; mirrored on request.
// Bilinear interpolation; when downscaling, each output pixel is a triangle-weighted mean over the input
// pixels it covers (like Pillow's BILINEAR). Pixels outside the box do not count.
void resample(const DecodedPart& part, int size, bool mirrored, const ColourScale& colours, float* result);

}  // namespace rondo
