#include "rondo/data/image_names.h"

#include <algorithm>
#include <array>

namespace rondo {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

bool is_image_ending(std::string_view ending) {
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

bool is_unread_image_ending(std::string_view ending) {
  static constexpr std::array<std::string_view, 15> known = {"webp", "gif",  "bmp", "tif",  "tiff",
                                                             "ppm",  "pgm",  "pbm", "avif", "heic",
                                                             "heif", "jfif", "jpe", "jp2",  "jxl"};
  return std::find(known.begin(), known.end(), ending) != known.end();
}

}  // namespace rondo
