#include "rondo/data/image/image_options.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

OptionsOf<ImageOptions> declared_image_options() {
  const AllowedValues colours{
      .check = [](const std::string& text,
                  const std::string& what) { colour_numbers(split(text, ','), what); },
      .type = "R,G,B"};
  OptionsOf<ImageOptions> table;
  table.begin_group("Data");
  table.add("image-size", &ImageOptions::size, "Height and width of a sample", within(1, 4096));
  table.add("augment", &ImageOptions::augment,
            "Augmentation: part of an image that becomes a training sample",
            one_of({"crop", "none", "random_resized_crop"}));
  table.add("crop-scale", &ImageOptions::crop_scale,
            "random_resized_crop: smallest fraction of an image's area", within(0.001, 1));
  table.add("flip", &ImageOptions::flip, "Mirror half of the training samples");
  table.add("image-mean", &ImageOptions::mean, "Mean of red, green and blue, between 0 and 1", colours);
  table.add("image-deviation", &ImageOptions::deviation, "Standard deviation of red, green and blue",
            colours);
  table.add("corrupt-images", &ImageOptions::corrupt,
            "Images that cannot be decoded: raise an error, or skip and count them",
            one_of({"error", "skip"}));
  table.add("jpeg-decode", &ImageOptions::decode,
            "scaled: decode JPEGs at 1/2, 1/4 or 1/8 size where that suffices", one_of({"full", "scaled"}));
  table.add("shuffle-window", &ImageOptions::shuffle_window,
            "Size of the shuffle window over shards, in samples", above_zero());
  table.without_flags({"augment", "flip", "crop-scale", "image-mean", "image-deviation", "corrupt-images",
                       "jpeg-decode", "shuffle-window"});
  return table;
}

OptionsOf<ImageOptions> without_window(const OptionsOf<ImageOptions>& table) {
  std::vector<std::string> names;
  for (const Option& option : table.options()) {
    if (option.name != "shuffle-window") names.push_back(option.name);
  }
  return table.only(names);
}

std::array<double, 3> colour_numbers(const std::vector<std::string>& texts, const std::string& flag) {
  if (texts.size() != 3)
    throw UsageError(str(flag, " ", join(texts, ","), ": expected three numbers, of red, green and blue"));
  std::array<double, 3> numbers;
  for (std::size_t i = 0; i < 3; ++i) numbers[i] = parse_number(texts[i], flag);
  return numbers;
}

}  // namespace rondo
