#include "rondo/data/images.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "rondo/base/error.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::images_test {
namespace {

using testing::expect_facts;
using testing::message_of;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// Returns an IDX file; pixel p of image i is (i + p) % 256.
std::string idx_images(std::uint32_t count, std::uint32_t height = 4, std::uint32_t width = 3) {
  std::string file =
      std::string("\0\0\x08\x03", 4) + big_endian(count) + big_endian(height) + big_endian(width);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t p = 0; p < height * width; ++p) file.push_back(static_cast<char>(i + p));
  }
  return file;
}

std::string idx_labels(std::uint32_t count, std::uint32_t classes = 10) {
  std::string file = std::string("\0\0\x08\x01", 4) + big_endian(count);
  for (std::uint32_t i = 0; i < count; ++i) file.push_back(static_cast<char>(i % classes));
  return file;
}

std::string cifar_records(std::size_t count, const CifarFormat& format) {
  std::string file;
  for (std::size_t i = 0; i < count; ++i) {
    file += std::string(format.label_bytes - 1, '\1');
    file.push_back(static_cast<char>(i % static_cast<std::size_t>(format.classes)));
    for (std::size_t p = 0; p < 3072; ++p) file.push_back(static_cast<char>(i + p));
  }
  return file;
}

// Checks that sample `index` is image `image` of the builders above.
void expect_image(const Dataset& data, std::int64_t index, std::int64_t image) {
  const Batch batch = data.get(std::vector<std::int64_t>{index});
  const at::Tensor pixels = (batch.input().flatten() + 1) * 127.5;
  const at::Tensor expected = (at::arange(pixels.numel()) + image).remainder(256).to(at::kFloat);
  EXPECT_TRUE(at::allclose(pixels, expected, 0, 1e-3)) << "image " << image;
  EXPECT_EQ(batch.target().item<std::int64_t>(), image % data.info().classes);
}

TEST(Idx, ReadsADirectoryWithMnistsNames) {
  const TemporaryDirectory directory;
  directory.write("train-images-idx3-ubyte", idx_images(30));
  directory.write("train-labels-idx1-ubyte", idx_labels(30));
  directory.write("t10k-images-idx3-ubyte", idx_images(12));
  directory.write("t10k-labels-idx1-ubyte", idx_labels(12));
  const OpenedData data = open_data("auto", directory.path());
  EXPECT_EQ(data.kind, "idx");
  EXPECT_EQ(data.train->size(), 30);
  EXPECT_EQ(data.validation->size(), 12);
  EXPECT_EQ(data.train->info().model_config(), (nlohmann::json{{"input_shape", {1, 4, 3}}, {"classes", 10}}));
  for (const std::int64_t i : {0, 7, 29}) expect_image(*data.train, i, i);
  const Batch batch = data.train->get(std::vector<std::int64_t>{1, 2});
  EXPECT_EQ(batch.input().sizes(), (std::vector<std::int64_t>{2, 1, 4, 3}));
  EXPECT_EQ(data.train->get({}).input().sizes(), (std::vector<std::int64_t>{0, 1, 4, 3}));
  EXPECT_THROW(data.train->get(std::vector<std::int64_t>{30}), UsageError);
}

TEST(Idx, SplitsTrainingDataWithoutTestPart) {
  const TemporaryDirectory directory;
  const std::string images = directory.write("fashion-images.idx3-ubyte", idx_images(40));
  directory.write("fashion-labels.idx1-ubyte", idx_labels(40, 40));
  const OpenedData data = open_data("auto", images, {.validation_fraction = 0.25});
  EXPECT_EQ(data.train->size(), 30);
  EXPECT_EQ(data.validation->size(), 10);
  std::set<std::int64_t> labels;  // each image has a different label
  for (const auto& part : {data.train, data.validation}) {
    for (std::int64_t i = 0; i < part->size(); ++i) {
      labels.insert(part->get(std::vector<std::int64_t>{i}).target().item<std::int64_t>());
    }
  }
  EXPECT_EQ(labels.size(), 40U);
  EXPECT_EQ(open_data("idx", images, {.validation_fraction = 0}).validation, nullptr);
}

TEST(Idx, ErrorsNameFileOffsetAndExpectation) {
  const std::string good = idx_images(5);
  const auto failure = [](std::string file, int dimensions = 3) {
    return message_of<DataError>([&] {
      parse_idx({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "images", dimensions);
    });
  };
  const auto changed = [&](std::size_t at, char value) {
    std::string file = good;
    file[at] = value;
    return file;
  };
  EXPECT_EQ(failure(good), "no exception");
  expect_facts(failure(""), {"'images'", "offset 0", "16 bytes"});
  expect_facts(failure(good.substr(0, 9)), {"'images'", "offset 9", "16 bytes"});
  expect_facts(failure(good.substr(0, 70)), {"'images'", "offset 70", "76 bytes"});
  expect_facts(failure(good + "xy"), {"'images'", "offset 76", "2"});
  expect_facts(failure(changed(1, 7)), {"'images'", "offset 0", "0 7", "0 0"});
  expect_facts(failure(changed(2, 0x0d)), {"'images'", "offset 2", "13", "8"});
  expect_facts(failure(good, 1), {"'images'", "offset 3", "3", "1"});
  expect_facts(failure(changed(11, 0)), {"'images'", "offset 8", "0", "1"});
  expect_facts(failure(changed(4, 0x7f)), {"'images'", "offset 4", "2130706437"});
  expect_facts(failure(changed(0, 0x1f)), {"31 0", "0 0"});
  expect_facts(failure("\x1f\x8b" + good), {"gunzip images"});
}

TEST(Idx, ErrorsOfPairs) {
  const TemporaryDirectory directory;
  const auto failure = [](const std::string& path) {
    return message_of<DataError>([&] { open_data("idx", path); });
  };
  expect_facts(failure(directory.write("strange", idx_images(3))), {"strange", "'images'"});
  expect_facts(failure(directory.path()), {"train-images-idx3-ubyte"});
  directory.write("train-images-idx3-ubyte", idx_images(3));
  expect_facts(failure(directory.path()), {"train-labels-idx1-ubyte", "No such file"});
  directory.write("train-labels-idx1-ubyte", idx_labels(4));
  expect_facts(failure(directory.path()), {"offset 4", "4 labels", "3"});
  directory.write("train-labels-idx1-ubyte", idx_labels(3));
  directory.write("t10k-images-idx3-ubyte", idx_images(3, 5, 5));
  directory.write("t10k-labels-idx1-ubyte", idx_labels(3));
  expect_facts(failure(directory.path()), {"5x5", "4x3"});
  const TemporaryDirectory packed;
  packed.write("train-images-idx3-ubyte.gz", "\x1f\x8b compressed");
  expect_facts(message_of<DataError>([&] { open_data("auto", packed.path()); }), {"gunzip"});
  const std::string file = packed.write("train-images-idx3-ubyte", "\x1f\x8b compressed");
  expect_facts(message_of<DataError>([&] { open_data("auto", file); }), {"gunzip", file.c_str()});
}

TEST(Cifar, ReadsBothKindsAsUnpacked) {
  for (const CifarFormat& format : {kCifar10, kCifar100}) {
    const TemporaryDirectory directory;
    const bool ten = format.kind == "cifar10";
    const std::string folder = ten ? "cifar-10-batches-bin/" : "cifar-100-binary/";
    directory.write(folder + (ten ? "data_batch_1.bin" : "train.bin"), cifar_records(4, format));
    if (ten) directory.write(folder + "data_batch_2.bin", cifar_records(3, format));
    directory.write(folder + (ten ? "test_batch.bin" : "test.bin"), cifar_records(2, format));
    for (const std::string& path : {directory.path().string(), directory.path().string() + "/" + folder}) {
      const OpenedData data = open_data("auto", path);
      EXPECT_EQ(data.kind, format.kind);
      EXPECT_EQ(data.train->size(), ten ? 7 : 4);
      EXPECT_EQ(data.validation->size(), 2);
      EXPECT_EQ(data.train->info().classes, format.classes);
      EXPECT_EQ(data.train->info().input_shape, (std::vector<std::int64_t>{3, 32, 32}));
      expect_image(*data.train, 3, 3);
      if (ten) expect_image(*data.train, 5, 1);
    }
    const OpenedData single = open_data("auto", directory.write("some.bin", cifar_records(5, format)));
    EXPECT_EQ(single.kind, format.kind);
    EXPECT_EQ(single.train->size() + single.validation->size(), 5);
  }
}

TEST(Cifar, ErrorsNameFileOffsetAndExpectation) {
  const TemporaryDirectory directory;
  const auto failure = [](const std::string& path) {
    return message_of<DataError>([&] { open_data("cifar10", path); });
  };
  std::string records = cifar_records(3, kCifar10);
  const std::string cut = directory.write("cut.bin", records.substr(0, 2 * 3073 + 100));
  EXPECT_EQ(failure(cut),
            "'" + cut +
                "', offset 6146: the file ends after 100 bytes, expected a record of 3073 bytes "
                "(cifar10)");
  records[3073] = 10;
  const std::string wrong = directory.write("wrong.bin", records);
  expect_facts(failure(wrong), {wrong.c_str(), "offset 3073", "label 10", "0 to 9", "cifar10"});
  expect_facts(failure(directory.path()), {"data_batch_1.bin"});
  expect_facts(failure(directory.write("none.bin", "")), {"none.bin", "empty"});
}

}  // namespace
}  // namespace rondo::images_test
