#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// Options of image_folder and webdataset.
struct ImageOptions {
  std::int64_t size = 224;  // height and width of a sample
  // Part of an image that a training sample shows: "random_resized_crop" (any part with `crop_scale` to all
  // of the area, aspect ratio 3:4 to 4:3), "crop" (a square of 7/8 of the shorter side, at a random position)
  // or "none" (as in validation: the central square of 7/8 of the shorter side).
  std::string augment = "random_resized_crop";
  double crop_scale = 0.08;  // random_resized_crop: the smallest fraction of the area, in (0, 1]
  bool flip = true;          // mirror half of the training samples
  // Mean of red, green and blue, values between 0 and 1: each value becomes (value - mean) / deviation.
  // Defaults are ImageNet's.
  std::vector<std::string> mean = {"0.485", "0.456", "0.406"};
  // Deviation of red, green and blue.
  std::vector<std::string> deviation = {"0.229", "0.224", "0.225"};
  std::string corrupt = "error";  // or "skip": skip and count images that cannot be decoded
  // Scale of decoding. "scaled": decode JPEGs at 1/2, 1/4 or 1/8 scale if a sample needs fewer pixels;
  // "full": always decode at full scale.
  std::string decode = "scaled";
  std::int64_t shuffle_window = 10'000;  // webdataset: size of the shuffle window in samples
};

// Returns the options table of ImageOptions.
OptionsOf<ImageOptions> declared_image_options();
// Returns the table without the options for shards only.
OptionsOf<ImageOptions> without_window(const OptionsOf<ImageOptions>& table);

// Parses three numbers, one for each colour. Throws UsageError naming `flag`.
std::array<double, 3> colour_numbers(const std::vector<std::string>& texts, const std::string& flag);

// The kind image_folder: images in one folder per class, like torchvision's ImageFolder: PATH/cat/*.jpg,
// PATH/dog/*.png, at any depth below a class. Classes are the sorted folder names. PATH/train and PATH/val
// (or validation) are the two parts if they exist. See data_kinds.h.
struct ImageFolderKind {
  using Options = ImageOptions;  // options of kind image_folder
  // Returns the name, summary and flags of kind image_folder, without libtorch.
  static std::vector<Declaration> declarations() {
    return {{"image_folder", "JPEG and PNG files in a folder for each class",
             without_window(declared_image_options())}};
  }
  // Returns whether the content at `path` is of the kind. Does not throw for unknown content.
  static bool detect(const std::string& name, const std::string& path);
  // Like open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

// The kind webdataset: tar files of images in WebDataset's format. A sample consists of the members with the
// same name up to the first dot: an image (jpg, jpeg or png, in any case) and its class number (cls). Members
// that belong to no sample are counted and named in a warning. PATH is one file or a folder of *.tar;
// val*.tar are for validation if there are other files too. The members are indexed once, when the files are
// opened. Training reads the shards in random order and shuffles in a window (order_of_shards()). See
// data_kinds.h.
struct WebDatasetKind {
  using Options = ImageOptions;  // options of kind webdataset
  // Returns the name, summary and flags of kind webdataset, without libtorch.
  static std::vector<Declaration> declarations() {
    return {{"webdataset", "tar files of images with their classes", declared_image_options()}};
  }
  // Returns whether the content at `path` is of the kind. Does not throw for unknown content.
  static bool detect(const std::string& name, const std::string& path);
  // Like open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
