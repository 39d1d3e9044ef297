// PNG by libpng.
#include <png.h>

#include "rondo/base/error.h"
#include "rondo/data/image/decode.h"

namespace rondo {
namespace {

struct PngImage {
  png_image value{};
  PngImage() { value.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&value); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

}  // namespace

DecodedPart decode_png(std::span<const std::uint8_t> file, const DecodeRequest& request) {
  PngImage image;
  if (png_image_begin_read_from_memory(&image.value, file.data(), file.size()) == 0)
    throw DataError(image.value.message);
  check_image_size(image.value.width, image.value.height);
  // With transparency, so that it can be dropped: without, libpng would paint a background.
  image.value.format = PNG_FORMAT_RGBA;
  std::vector<std::uint8_t> all(PNG_IMAGE_SIZE(image.value));
  if (png_image_finish_read(&image.value, nullptr, all.data(), 0, nullptr) == 0)
    throw DataError(image.value.message);
  const auto whole_width = static_cast<int>(image.value.width);
  const ImageBox box = request.choose(whole_width, static_cast<int>(image.value.height));
  DecodedPart part{.width = box.width, .height = box.height};
  part.box_width = box.width;
  part.box_height = box.height;
  part.pixels.resize(std::size_t{3} * static_cast<std::size_t>(box.width) *
                     static_cast<std::size_t>(box.height));
  std::uint8_t* to = part.pixels.data();
  for (int y = box.top; y < box.top + box.height; ++y) {
    const std::uint8_t* from =
        all.data() + 4 * (static_cast<std::size_t>(y) * static_cast<std::size_t>(whole_width) +
                          static_cast<std::size_t>(box.left));
    for (int x = 0; x < box.width; ++x, from += 4, to += 3) {
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return part;
}

}  // namespace rondo
