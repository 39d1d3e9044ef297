#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

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

// The flags of its fields.
OptionsOf<ImageOptions> declared_image_options();
// The same without those of shards only.
OptionsOf<ImageOptions> without_window(const OptionsOf<ImageOptions>& table);

// Three numbers, one for each colour. Throws UsageError naming `flag`.
std::array<double, 3> colour_numbers(const std::vector<std::string>& texts, const std::string& flag);

// The kind image_folder: images in a folder for each class, as torchvision's ImageFolder reads them:
// PATH/cat/*.jpg, PATH/dog/*.png, at any depth below a class; classes are the names of the folders, sorted.
// With PATH/train and PATH/val (or validation) these are the two parts. See data_kinds.h.
struct ImageFolderKind {
  using Options = ImageOptions;  // of kind image_folder
  // The name, summary and flags of kind image_folder, without libtorch.
  static std::vector<Declaration> declarations() {
    return {{"image_folder", "JPEG and PNG files in a folder for each class",
             without_window(declared_image_options())}};
  }
  // Whether the content at `path` is of the kind; never throws for content that it does not understand.
  static bool detect(const std::string& name, const std::string& path);
  // As open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

// The kind webdataset, tar files of images as WebDataset has them: a sample is the members with one name up
// to the first dot, an image (jpg, jpeg or png, in small or capital letters) and its class as a number (cls).
// Members of no sample are counted and named in a warning. PATH is one file, or a folder of *.tar, of which
// val*.tar are for validation where there are others besides. Members are found once, when the files are
// opened; a training reads the shards in random order, and shuffles in a window (order_of_shards()). See
// data_kinds.h.
struct WebDatasetKind {
  using Options = ImageOptions;  // of kind webdataset
  // The name, summary and flags of kind webdataset, without libtorch.
  static std::vector<Declaration> declarations() {
    return {{"webdataset", "tar files of images with their classes", declared_image_options()}};
  }
  // Whether the content at `path` is of the kind; never throws for content that it does not understand.
  static bool detect(const std::string& name, const std::string& path);
  // As open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
