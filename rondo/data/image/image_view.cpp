#include "rondo/data/image/image_view.h"

#include <algorithm>
#include <cmath>

namespace rondo {
namespace {

constexpr double kPartOfShorterSide = 7.0 / 8.0;
constexpr int kAttempts = 10;
constexpr double kWidest = 4.0 / 3.0;  // of width to height; the narrowest is its inverse

int square_side(int width, int height) {
  return std::max(1, static_cast<int>(std::lround(std::min(width, height) * kPartOfShorterSide)));
}

int place(int room, RandomStream& random) {
  return static_cast<int>(random.below(static_cast<std::uint64_t>(room) + 1));
}

// As Szegedy et al. (2015) trained: an area and an aspect are drawn until they fit; else the middle at the
// nearest aspect that does.
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

}  // namespace rondo
