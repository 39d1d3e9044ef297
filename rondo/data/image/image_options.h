#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/options/option_table.h"

namespace rondo {

// What image_folder and webdataset can be told.
struct ImageOptions {
  std::int64_t size = 224;  // height and width of a sample
  // Which part of an image a sample of the training is: "random_resized_crop" (any part of `crop_scale` to
  // all of the area, 3:4 to 4:3), "crop" (a square of 7/8 of the shorter side, anywhere) or "none" (as in
  // validation: a square of 7/8 of it in the middle).
  std::string augment = "random_resized_crop";
  double crop_scale = 0.08;  // with random_resized_crop: the smallest part of the area, in (0, 1]
  bool flip = true;          // half of the training's samples are mirrored
  // Of red, green and blue between 0 and 1: value - mean is divided by deviation. ImageNet's.
  std::vector<std::string> mean = {"0.485", "0.456", "0.406"};
  // Likewise.
  std::vector<std::string> deviation = {"0.229", "0.224", "0.225"};
  std::string corrupt = "error";  // or "skip": images that cannot be decoded are left out and counted
  // "scaled": JPEGs of which a sample needs fewer pixels are decoded at a half, a quarter or an eighth of
  // their size; "full": never.
  std::string decode = "scaled";
  std::int64_t shuffle_window = 10'000;  // webdataset: samples of the window in which they are shuffled
};

// Which of its fields have names.
OptionsOf<ImageOptions> declared_image_options();
// The same without what only shards have.
OptionsOf<ImageOptions> without_window(const OptionsOf<ImageOptions>& table);

// Three numbers, one for each colour. Throws UsageError naming `flag`.
std::array<double, 3> colour_numbers(const std::vector<std::string>& texts, const std::string& flag);

}  // namespace rondo
