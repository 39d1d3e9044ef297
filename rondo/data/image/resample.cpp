#include "rondo/data/image/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace rondo {
namespace {

// Filter taps of each output pixel: the first input pixel, the number of inputs, and their weights.
struct Taps {
  std::vector<int> first, count;
  std::vector<float> weights;  // `most` weights for each pixel
  int most = 0;
};

// Computes the taps of one dimension: [begin, begin + length) of `pixels` input pixels becomes `size` pixels.
Taps make_taps(int pixels, double begin, double length, int size) {
  const double scale = length / size;
  const double reach = std::max(scale, 1.0);
  const int low = std::clamp(static_cast<int>(std::floor(begin)), 0, pixels - 1);
  const int high = std::clamp(static_cast<int>(std::ceil(begin + length)), low + 1, pixels);
  Taps taps;
  taps.most = static_cast<int>(std::ceil(reach)) * 2 + 1;
  taps.weights.resize(static_cast<std::size_t>(size) * static_cast<std::size_t>(taps.most));
  for (int i = 0; i < size; ++i) {
    const double centre = begin + (i + 0.5) * scale;
    // NOLINTBEGIN(bugprone-incorrect-roundings): the pixels that Pillow takes
    const int first = std::clamp(static_cast<int>(centre - reach + 0.5), low, high - 1);
    const int end = std::clamp(static_cast<int>(centre + reach + 0.5), first + 1, high);
    // NOLINTEND(bugprone-incorrect-roundings)
    float* weights = taps.weights.data() + static_cast<std::ptrdiff_t>(i) * taps.most;
    const int count = std::min(end - first, taps.most);
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      const double weight = std::max(0.0, 1 - std::abs((first + k - centre + 0.5) / reach));
      weights[k] = static_cast<float>(weight);
      sum += weight;
    }
    // A box narrower than a pixel may have no pixel under the triangle.
    if (sum <= 0) weights[0] = 1;
    for (int k = 0; k < count && sum > 0; ++k) weights[k] = static_cast<float>(weights[k] / sum);
    taps.first.push_back(first);
    taps.count.push_back(count);
  }
  return taps;
}

}  // namespace

void resample(const DecodedPart& part, int size, bool mirrored, const ColourScale& colours, float* result) {
  const Taps across = make_taps(part.width, part.left, part.box_width, size);
  const Taps down = make_taps(part.height, part.top, part.box_height, size);
  // Vertical first: sums of whole rows are contiguous in memory and vectorise.
  const int left = *std::min_element(across.first.begin(), across.first.end());
  const int right = across.first.back() + across.count.back();
  const auto values = static_cast<std::size_t>(right - left) * 3;
  std::vector<float> sums(values);
  const std::ptrdiff_t row_bytes = static_cast<std::ptrdiff_t>(part.width) * 3;
  const std::ptrdiff_t plane = static_cast<std::ptrdiff_t>(size) * size;
  for (int y = 0; y < size; ++y) {
    const auto row = static_cast<std::size_t>(y);
    const float* row_weights = down.weights.data() + static_cast<std::ptrdiff_t>(y) * down.most;
    for (int k = 0; k < down.count[row]; ++k) {
      const std::uint8_t* from =
          part.pixels.data() + (down.first[row] + k) * row_bytes + static_cast<std::ptrdiff_t>(left) * 3;
      const float weight = row_weights[k];
      if (k == 0) {
        for (std::size_t i = 0; i < values; ++i) sums[i] = weight * static_cast<float>(from[i]);
      } else {
        for (std::size_t i = 0; i < values; ++i) sums[i] += weight * static_cast<float>(from[i]);
      }
    }
    for (int x = 0; x < size; ++x) {
      const auto column = static_cast<std::size_t>(x);
      const float* weights = across.weights.data() + static_cast<std::ptrdiff_t>(x) * across.most;
      const float* from = sums.data() + static_cast<std::ptrdiff_t>(across.first[column] - left) * 3;
      float red = 0, green = 0, blue = 0;
      for (int k = 0; k < across.count[column]; ++k, from += 3) {
        red += weights[k] * from[0];
        green += weights[k] * from[1];
        blue += weights[k] * from[2];
      }
      float* to = result + static_cast<std::ptrdiff_t>(y) * size + (mirrored ? size - 1 - x : x);
      to[0] = red * colours.scale[0] + colours.shift[0];
      to[plane] = green * colours.scale[1] + colours.shift[1];
      to[2 * plane] = blue * colours.scale[2] + colours.shift[2];
    }
  }
}

}  // namespace rondo
