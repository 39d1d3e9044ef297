#include "rondo/data/image/decode.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr double kPartOfShorterSide = 7.0 / 8.0;
constexpr int kAttempts = 10;
constexpr double kWidest = 4.0 / 3.0;  // maximum width / height; the minimum is its inverse

int square_side(int width, int height) {
  return std::max(1, static_cast<int>(std::lround(std::min(width, height) * kPartOfShorterSide)));
}

int place(int room, RandomStream& random) {
  return static_cast<int>(random.below(static_cast<std::uint64_t>(room) + 1));
}

// Chooses a crop as in Szegedy et al. (2015): draws area and aspect ratio until they fit. After 10 attempts
// uses the centre with the nearest possible aspect ratio.
ImageBox random_resized_crop(double least_area, int width, int height, RandomStream& random) {
  const double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double wanted = area * (least_area + (1 - least_area) * random.uniform());
    const double aspect = std::exp(std::log(kWidest) * (2 * random.uniform() - 1));
    const int w = static_cast<int>(std::lround(std::sqrt(wanted * aspect)));
    const int h = static_cast<int>(std::lround(std::sqrt(wanted / aspect)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int left = place(width - w, random), top = place(height - h, random);
    return {left, top, w, h};
  }
  int w = width, h = height;
  const double aspect = static_cast<double>(width) / height;
  if (aspect > kWidest) w = std::max(1, static_cast<int>(std::lround(height * kWidest)));
  if (aspect < 1 / kWidest) h = std::max(1, static_cast<int>(std::lround(width * kWidest)));
  return {(width - w) / 2, (height - h) / 2, w, h};
}

}  // namespace

ImageView random_view(const ImageOptions& options, int width, int height, RandomStream& random) {
  ImageView view = middle_view(width, height);
  if (options.augment == "random_resized_crop") {
    view.box = random_resized_crop(options.crop_scale, width, height, random);
  } else if (options.augment == "crop") {
    view.box.left = place(width - view.box.width, random);
    view.box.top = place(height - view.box.height, random);
  }
  view.mirrored = options.flip && random.below(2) == 1;
  return view;
}

ImageView middle_view(int width, int height) {
  const int side = square_side(width, height);
  return {.box = {(width - side) / 2, (height - side) / 2, side, side}};
}

namespace {

// Limits the memory that a header of a few bytes can request.
constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 27;

}  // namespace

void check_image_size(std::uint64_t width, std::uint64_t height) {
  if (width == 0 || height == 0 || width > kMostPixels / height)
    throw DataError(str("the image has ", width, " x ", height, " pixels, expected 1 to ", kMostPixels));
}

DecodedPart decode_image(std::span<const std::uint8_t> file, const DecodeRequest& request) {
  if (file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff)
    return decode_jpeg(file, request);
  if (file.size() >= 4 && file[0] == 0x89 && file[1] == 'P' && file[2] == 'N' && file[3] == 'G')
    return decode_png(file, request);
  throw DataError(str("of ", file.size(), " bytes that begin neither as a JPEG nor as a PNG file"));
}

}  // namespace rondo
