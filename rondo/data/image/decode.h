#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rondo/base/random.h"
#include "rondo/data/image/image_options.h"

namespace rondo {

// A part of an image, in its pixels.
struct ImageBox {
  int left = 0, top = 0, width = 0, height = 0;
};

// What a sample shows.
struct ImageView {
  ImageBox box;
  bool mirrored = false;
};

// A part of an image of width x height pixels for training, as ImageOptions::augment says; `random` decides.
ImageView random_view(const ImageOptions& options, int width, int height, RandomStream& random);
// The square of 7/8 of the shorter side in the middle: what resizing the shorter side to 8/7 of the wanted
// size and cutting out the middle gives.
ImageView middle_view(int width, int height);

// Pixels of a part of an image, perhaps at a part of its size.
struct DecodedPart {
  int width = 0, height = 0;              // of `pixels`
  std::vector<std::uint8_t> pixels = {};  // red, green, blue; row by row
  // Where the wanted box lies in them, in their pixels; within [0, width] x [0, height].
  double left = 0, top = 0, box_width = 0, box_height = 0;
};

// How an image is to be decoded.
struct DecodeRequest {
  // Which part is wanted of an image of so many pixels.
  std::function<ImageBox(int width, int height)> choose;
  int size = 0;  // to how many pixels each side of the box will be resampled
  // May be decoded at a half, a quarter or an eighth of its size, as long as the box keeps `size` pixels.
  bool may_scale = true;
};

// Decodes a JPEG or PNG file, told by its first bytes; grey, palette, CMYK and 16-bit images become RGB,
// transparency is dropped. Any thread. Throws DataError, which says what is wrong but not with which file,
// for anything that is damaged, cut off, or larger than 2^27 pixels; UsageError where this build lacks the
// library.
DecodedPart decode_image(std::span<const std::uint8_t> file, const DecodeRequest& request);

// What decode_image() uses. Files are JPEG or PNG by their first bytes.
DecodedPart decode_jpeg(std::span<const std::uint8_t> file, const DecodeRequest& request);
DecodedPart decode_png(std::span<const std::uint8_t> file, const DecodeRequest& request);  // likewise

// Throws DataError for an image of no pixels, or more than any image of a data set has.
void check_image_size(std::uint64_t width, std::uint64_t height);

}  // namespace rondo
