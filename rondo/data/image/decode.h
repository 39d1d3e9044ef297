#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rondo/base/random.h"
#include "rondo/data/image/image_options.h"

namespace rondo {

// A rectangle of an image, in pixels.
struct ImageBox {
  int left = 0, top = 0, width = 0, height = 0;
};

// The part of an image that a sample shows.
struct ImageView {
  ImageBox box;
  bool mirrored = false;
};

// Returns a random part of an image of width x height pixels for training, according to
// ImageOptions::augment. `random` is the source of randomness.
ImageView random_view(const ImageOptions& options, int width, int height, RandomStream& random);
// Returns the central square of 7/8 of the shorter side. Equivalent to resizing the shorter side to 8/7 of
// the wanted size and cropping the centre.
ImageView middle_view(int width, int height);

// Pixels of a part of an image, possibly at reduced scale.
struct DecodedPart {
  int width = 0, height = 0;              // size of `pixels`
  std::vector<std::uint8_t> pixels = {};  // RGB, row by row
  // Requested box in pixels of this part; within [0, width] x [0, height].
  double left = 0, top = 0, box_width = 0, box_height = 0;
};

// Parameters for decoding an image.
struct DecodeRequest {
  // Returns the requested part of an image of the given size in pixels.
  std::function<ImageBox(int width, int height)> choose;
  int size = 0;  // pixels per side after resampling the box
  // Whether to allow decoding at 1/2, 1/4 or 1/8 scale, as long as the box keeps at least `size` pixels.
  bool may_scale = true;
};

// Decodes a JPEG or PNG file, recognised by its first bytes. Converts grey, palette, CMYK and 16-bit images
// to RGB and drops transparency. Thread-safe. Throws DataError without a file name for a file that is
// damaged, truncated or larger than 2^27 pixels. Throws UsageError if this build lacks the library.
DecodedPart decode_image(std::span<const std::uint8_t> file, const DecodeRequest& request);

// Decode one format, for decode_image(). The first bytes of the file match the format.
DecodedPart decode_jpeg(std::span<const std::uint8_t> file, const DecodeRequest& request);
DecodedPart decode_png(std::span<const std::uint8_t> file, const DecodeRequest& request);  // same for PNG

// Throws DataError for an image with no pixels or more than 2^27 pixels.
void check_image_size(std::uint64_t width, std::uint64_t height);

}  // namespace rondo
