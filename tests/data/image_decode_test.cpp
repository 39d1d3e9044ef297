// Compares pixels of JPEG and PNG files with Pillow's.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/data/image/resample.h"
#include "tests/data/images_reference.h"
#include "tests/errors.h"

namespace rondo::image_decode_test {
namespace {

using testing::expect_facts;
using testing::ImageReference;
using testing::message_of;

const ImageReference& reference() {
  static const ImageReference read = testing::read_image_reference();
  return read;
}

std::span<const std::uint8_t> bytes_of(const std::string& file) {
  return {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()};
}

std::vector<float> part_of(const std::string& file, int size, bool may_scale, bool mirrored = false) {
  const DecodedPart part = decode_image(bytes_of(file), {.choose =
                                                             [](int width, int height) {
                                                               EXPECT_EQ(width, reference().width);
                                                               EXPECT_EQ(height, reference().height);
                                                               return reference().box;
                                                             },
                                                         .size = size,
                                                         .may_scale = may_scale});
  std::vector<float> result(static_cast<std::size_t>(3 * size * size));
  resample(part, size, mirrored, {.scale = {1, 1, 1}, .shift = {0, 0, 0}}, result.data());
  return result;
}

struct Difference {
  double mean = 0, most = 0;
};

template <class Other>
Difference difference(const std::vector<float>& a, const Other& b) {
  Difference result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double each = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    result.most = std::max(result.most, each);
    result.mean += each / static_cast<double>(a.size());
  }
  return result;
}

TEST(ImageDecode, EveryFormIsWhatPillowMakesOfIt) {
  ASSERT_EQ(reference().images.size(), 13U);
  for (const testing::ReferenceImage& image : reference().images) {
    const Difference found = difference(part_of(image.file, reference().size, false), image.pixels);
    // Pillow rounds between its two passes and at the end. At the edge of a cropped JPEG, the colours, which
    // are stored at half resolution, have no neighbour.
    EXPECT_LT(found.mean, 0.6) << image.name;
    EXPECT_LT(found.most, 4) << image.name;
  }
}

TEST(ImageDecode, ASmallerDecodedSizeLooksTheSame) {
  const std::string& file = reference().file("plain.jpg");
  const std::vector<float> full = part_of(file, 12, false), scaled = part_of(file, 12, true);
  const Difference found = difference(full, scaled);
  EXPECT_GT(found.most, 0) << "it was not decoded at another size";
  EXPECT_LT(found.mean, 2.5);
  // Does not decode below the requested size: 64 x 48 pixels have at least 40 pixels per side only at full
  // scale.
  EXPECT_EQ(part_of(file, 40, true), part_of(file, 40, false));
}

TEST(ImageDecode, MirroredIsTheSameTheOtherWayRound) {
  const int size = 20;
  const std::vector<float> plain = part_of(reference().file("plain.png"), size, false);
  const std::vector<float> mirrored = part_of(reference().file("plain.png"), size, false, true);
  for (int row = 0; row < 3 * size; ++row) {
    for (int x = 0; x < size; ++x)
      EXPECT_EQ(plain[static_cast<std::size_t>(row * size + x)],
                mirrored[static_cast<std::size_t>(row * size + size - 1 - x)]);
  }
}

TEST(ImageDecode, BoxAtFullSizeIsUnchanged) {
  DecodedPart part{
      .width = 5, .height = 4, .pixels = {}, .left = 1, .top = 1, .box_width = 3, .box_height = 3};
  for (int i = 0; i < 60; ++i) part.pixels.push_back(static_cast<std::uint8_t>(i * 4));
  std::vector<float> result(27);
  resample(part, 3, false, {.scale = {0.5F, 1, 1}, .shift = {1, 0, 0}}, result.data());
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 3; ++x) {
      const int at = ((y + 1) * 5 + x + 1) * 3;
      EXPECT_FLOAT_EQ(result[static_cast<std::size_t>(y * 3 + x)], static_cast<float>(at * 4) * 0.5F + 1);
      EXPECT_FLOAT_EQ(result[static_cast<std::size_t>(18 + y * 3 + x)], static_cast<float>((at + 2) * 4));
    }
  }
}

// Every damaged file is refused with a reason or decodes to the full number of pixels; nothing crashes.
TEST(ImageDecode, DamagedFilesAreRefusedOrWhole) {
  RandomStream random(5);
  for (const testing::ReferenceImage& image : reference().images) {
    int refused = 0;
    for (int round = 0; round < 200; ++round) {
      std::string file = image.file;
      switch (random.below(3)) {
        case 0:
          file.resize(random.below(file.size()));
          break;
        case 1:
          for (int i = 0; i < 6; ++i) file[random.below(file.size())] = static_cast<char>(random());
          break;
        default:
          file.erase(random.below(file.size()), 1 + random.below(40));
      }
      try {
        const DecodedPart part = decode_image(bytes_of(file), {.choose =
                                                                   [](int width, int height) {
                                                                     return ImageBox{0, 0, width, height};
                                                                   },
                                                               .size = 8});
        EXPECT_EQ(part.pixels.size(), static_cast<std::size_t>(3 * part.width * part.height));
      } catch (const DataError& error) {
        EXPECT_NE(std::string(error.what()), "");
        ++refused;
      }
    }
    EXPECT_GT(refused, 60) << image.name;
  }
}

// Also if only rows far above the end are requested.
TEST(ImageDecode, RefusesTruncatedFiles) {
  for (const testing::ReferenceImage& image : reference().images) {
    // The last twelve bytes of a PNG file only mark its end.
    for (const double part : {image.name.ends_with(".png") ? 0.95 : 0.99, 0.9, 0.5}) {
      const std::string cut =
          image.file.substr(0, static_cast<std::size_t>(static_cast<double>(image.file.size()) * part));
      EXPECT_THROW(decode_image(bytes_of(cut), {.choose =
                                                    [](int, int) {
                                                      return ImageBox{0, 0, 16, 8};
                                                    },
                                                .size = 8}),
                   DataError)
          << image.name << " " << part;
    }
  }
  expect_facts(message_of<DataError>([] { decode_image(bytes_of("GIF89a"), {}); }), {"6", "JPEG", "PNG"});
}

TEST(ImageView, RandomPartsStayInsideTheImageAndScale) {
  ImageOptions options;
  options.crop_scale = 0.2;
  int mirrored = 0, left_most = 1000;
  for (int i = 0; i < 2000; ++i) {
    RandomStream random(3, static_cast<std::uint64_t>(i));
    const auto [box, is_mirrored] = random_view(options, 500, 375, random);
    EXPECT_GE(box.left, 0);
    EXPECT_GE(box.top, 0);
    EXPECT_LE(box.left + box.width, 500);
    EXPECT_LE(box.top + box.height, 375);
    EXPECT_GE(box.width * box.height, 500 * 375 * 0.195);
    EXPECT_LT(std::abs(std::log(static_cast<double>(box.width) / box.height)), 0.30);
    mirrored += is_mirrored ? 1 : 0;
    left_most = std::min(left_most, box.left);
  }
  EXPECT_NEAR(mirrored, 1000, 120);
  EXPECT_EQ(left_most, 0);
  options.flip = false;
  options.augment = "none";
  RandomStream random(3);
  const ImageView middle = random_view(options, 500, 400, random);
  EXPECT_EQ(middle.box.width, 350);
  EXPECT_EQ(middle.box.left, 75);
  EXPECT_EQ(middle.box.top, 25);
  EXPECT_FALSE(middle.mirrored);
  RandomStream tiny(1);
  EXPECT_EQ(random_view({}, 1, 1, tiny).box.width, 1);
}

}  // namespace
}  // namespace rondo::image_decode_test
