// Image folders and tar shards as data sets.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/data/image/image_options.h"
#include "rondo/data/loader.h"
#include "rondo/data/mixture.h"
#include "rondo/data/open.h"
#include "rondo/data/sampler.h"
#include "rondo/data/training_sampler.h"
#include "rondo/data/web_dataset.h"
#include "tests/data/images_reference.h"
#include "tests/errors.h"

namespace rondo::image_data_test {
namespace {

using testing::expect_facts;
using testing::message_of;

const testing::ImageReference& reference() {
  static const testing::ImageReference read = testing::read_image_reference();
  return read;
}

DataOptions options_of(std::int64_t size, double fraction = 0) {
  DataOptions options{.validation_fraction = fraction};
  options.of_kind.edit<ImageOptions>().size = size;
  return options;
}

// Two classes of four images each.
void write_classes(const TemporaryDirectory& directory, const std::string& below = "") {
  for (const char* name : {"plain.jpg", "grey.jpg", "progressive.jpg", "plain.png"}) {
    directory.write(below + "cat/" + name, reference().file(name));
    directory.write(below + "dog/deeper/" + name, reference().file(name));
  }
  directory.write(below + "dog/notes.txt", "not an image");
  directory.write(below + "empty/notes.txt", "not an image");
}

std::vector<std::int64_t> all_of(const Dataset& data) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(ImageFolder, ClassesAreTheFoldersWithImages) {
  const TemporaryDirectory directory;
  write_classes(directory);
  const OpenedData data = open_data("auto", directory.path(), options_of(10));
  EXPECT_EQ(data.kind, "image_folder");
  ASSERT_EQ(data.train->size(), 8);
  EXPECT_EQ(data.train->info().class_names, (std::vector<std::string>{"cat", "dog"}));
  const Batch batch = data.train->get(all_of(*data.train));
  EXPECT_EQ(batch.input().sizes(), (std::vector<std::int64_t>{8, 3, 10, 10}));
  EXPECT_EQ(batch.target().sum().item<std::int64_t>(), 4);
  EXPECT_EQ(batch.target()[0].item<std::int64_t>(), 0);
  EXPECT_EQ(data.train->get({}).input().sizes(), (std::vector<std::int64_t>{0, 3, 10, 10}));
  EXPECT_EQ(data.train->info().model_config(),
            (nlohmann::json{{"input_shape", {3, 10, 10}}, {"classes", 2}}));
}

TEST(ImageFolder, ValidationIsFolderOrRandomPartWithoutAugmentation) {
  const TemporaryDirectory directory;
  write_classes(directory, "train/");
  directory.write("val/dog/x.png", reference().file("plain.png"));
  const OpenedData named = open_data("image_folder", directory.path(), options_of(8, 0.3));
  EXPECT_EQ(named.train->size(), 8);
  EXPECT_EQ(named.validation->size(), 1);
  EXPECT_EQ(named.validation->get(std::vector<std::int64_t>{0}).target().item<std::int64_t>(), 1);
  const std::vector<std::int64_t> first = {0};
  EXPECT_TRUE(at::equal(named.validation->get_at_epoch(first, 0).input(),
                        named.validation->get_at_epoch(first, 5).input()));
  const OpenedData part = open_data("image_folder", directory / "train", options_of(8, 0.25));
  EXPECT_EQ(part.train->size(), 6);
  EXPECT_EQ(part.validation->size(), 2);
  EXPECT_TRUE(at::equal(part.validation->get_at_epoch(first, 0).input(),
                        part.validation->get_at_epoch(first, 5).input()));
  EXPECT_FALSE(
      at::equal(part.train->get_at_epoch(first, 0).input(), part.train->get_at_epoch(first, 5).input()));
}

TEST(ImageFolder, AugmentationDependsOnSeedEpochAndSample) {
  const TemporaryDirectory directory;
  write_classes(directory);
  const auto data = open_data("image_folder", directory.path(), options_of(9)).train;
  const at::Tensor whole = data->get_at_epoch(all_of(*data), 2).input();
  EXPECT_TRUE(at::equal(whole, data->get_at_epoch(all_of(*data), 2).input()));
  EXPECT_TRUE(at::equal(whole[5], data->get_at_epoch(std::vector<std::int64_t>{5}, 2).input()[0]));
  EXPECT_FALSE(at::equal(whole, data->get_at_epoch(all_of(*data), 3).input()));
  DataOptions other = options_of(9);
  other.seed = 1;
  const auto with_seed = open_data("image_folder", directory.path(), other).train;
  EXPECT_FALSE(at::equal(whole, with_seed->get_at_epoch(all_of(*data), 2).input()));
  // For any number of threads.
  for (const int threads : {0, 3}) {
    Loader loader(data, std::make_shared<ExactSampler>(8, 0, 1), {.batch_size = 3, .threads = threads});
    loader.seek({.epoch = 2});
    EXPECT_TRUE(at::equal(loader.next()->input(), whole.narrow(0, 0, 3)));
    EXPECT_TRUE(at::equal(loader.next()->input(), whole.narrow(0, 3, 3)));
  }
}

TEST(ImageFolder, ColoursAreNormalised) {
  const TemporaryDirectory directory;
  write_classes(directory);
  DataOptions plain = options_of(6);
  plain.of_kind.edit<ImageOptions>().augment = "none";
  plain.of_kind.edit<ImageOptions>().flip = false;
  plain.of_kind.edit<ImageOptions>().mean = {"0", "0", "0"};
  plain.of_kind.edit<ImageOptions>().deviation = {"1", "1", "1"};
  const at::Tensor values =
      open_data("image_folder", directory.path(), plain).train->get(std::vector<std::int64_t>{0}).input();
  EXPECT_GE(values.min().item<float>(), 0);
  EXPECT_LE(values.max().item<float>(), 1);
  plain.of_kind.edit<ImageOptions>().mean = {"0.5", "0.25", "0"};
  plain.of_kind.edit<ImageOptions>().deviation = {"2", "1", "0.5"};
  const at::Tensor scaled =
      open_data("image_folder", directory.path(), plain).train->get(std::vector<std::int64_t>{0}).input();
  const at::Tensor mean = at::tensor({0.5F, 0.25F, 0.0F}).view({1, 3, 1, 1});
  const at::Tensor deviation = at::tensor({2.0F, 1.0F, 0.5F}).view({1, 3, 1, 1});
  EXPECT_TRUE(at::allclose(scaled, (values - mean) / deviation, 1e-5, 1e-5));
  plain.of_kind.edit<ImageOptions>().deviation = {"1", "0", "1"};
  expect_facts(message_of<UsageError>([&] { open_data("image_folder", directory.path(), plain); }),
               {"deviation", "0"});
}

TEST(ImageFolder, CorruptImageIsErrorOrSkippedAndCounted) {
  const TemporaryDirectory directory;
  write_classes(directory);
  directory.write("cat/broken.jpg", reference().file("plain.jpg").substr(0, 700));
  directory.write("cat/zzz.png", "no image at all");
  DataOptions options = options_of(8);
  const auto strict = open_data("image_folder", directory.path(), options).train;
  ASSERT_EQ(strict->size(), 10);
  expect_facts(message_of<DataError>([&] { strict->get(all_of(*strict)); }), {"broken.jpg'"});
  options.of_kind.edit<ImageOptions>().corrupt = "skip";
  const auto data = open_data("image_folder", directory.path(), options).train;
  for (const std::int64_t epoch : {0, 1}) {
    const Batch batch = data->get_at_epoch(all_of(*data), epoch);
    EXPECT_EQ(batch.samples, 8);
    EXPECT_EQ(batch.input().size(0), 8);
    EXPECT_EQ(batch.target().size(0), 8);
    EXPECT_EQ(batch.indices, (std::vector<std::int64_t>{1, 2, 3, 4, 6, 7, 8, 9})) << "broken.jpg comes first";
  }
  EXPECT_EQ(data->get(std::vector<std::int64_t>{0}).samples, 0);
  // Samples keep their indices through a subset, a mixture and the loader.
  DataOptions split = options;
  split.validation_fraction = 0.3;
  const auto part = open_data("image_folder", directory.path(), split).train;
  Loader loader(part, std::make_shared<ExactSampler>(part->size(), 0, 1), {.batch_size = 100});
  loader.seek({});
  const Batch read = *loader.next();
  EXPECT_EQ(static_cast<std::int64_t>(read.indices.size()), read.samples);
  EXPECT_LE(read.indices.back(), part->size() - 1);
  const OpenedData mixed =
      open_mixture("image_folder", {directory.path(), directory.path()}, {1, 1}, options);
  const Batch twice = mixed.train->get(all_of(*mixed.train));
  EXPECT_EQ(twice.samples, 16);
  EXPECT_EQ(twice.input().size(0), 16);
  EXPECT_EQ(twice.indices.size(), 16U);
}

TEST(ImageFolder, AClassOfUnreadableImagesIsNamed) {
  const TemporaryDirectory directory;
  write_classes(directory);
  directory.write("cat/extra.gif", "GIF89a");
  EXPECT_EQ(open_data("auto", directory.path(), options_of(8)).train->size(), 8)
      << "a warning names the file";
  directory.write("bird/deeper/1.webp", "RIFF");
  directory.write("bird/2.WEBP", "RIFF");
  expect_facts(message_of<DataError>([&] { open_data("auto", directory.path(), options_of(8)); }),
               {"bird'", "2 .webp", ".png"});
}

TEST(ImageFolder, WhatItIsNotIsSaid) {
  const TemporaryDirectory directory;
  directory.write("a/notes.txt", "x");
  const std::string file = directory.write("x.jpg", reference().file("plain.jpg"));
  expect_facts(message_of<DataError>([&] { open_data("image_folder", directory.path(), options_of(8)); }),
               {".jpg"});
  expect_facts(message_of<DataError>([&] { open_data("image_folder", file, options_of(8)); }), {"x.jpg'"});
  const TemporaryDirectory other;
  write_classes(other, "train/");
  other.write("val/bird/x.png", reference().file("plain.png"));
  expect_facts(message_of<DataError>([&] { open_data("image_folder", other.path(), options_of(8)); }),
               {"bird", "cat", "dog"});
}

// Returns one member in tar format.
std::string member(const std::string& name, const std::string& content, char type = '0',
                   const std::string& target = "") {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(157, target.size(), target);
  std::snprintf(header.data() + 124, 12, "%011zo", content.size());
  header[156] = type;
  header.replace(257, 5, "ustar");
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  std::snprintf(header.data() + 148, 8, "%06o", sum);
  std::string whole = header + content;
  whole.resize((whole.size() + 511) / 512 * 512, '\0');
  return whole;
}

std::string shard(int first, int count) {
  std::string archive = member("./", "", '5');
  for (int i = first; i < first + count; ++i) {
    const std::string key = "./part.d/" + std::to_string(1000 + i);
    archive += member(key + ".jpg", reference().file(i % 2 != 0 ? "plain.jpg" : "grey.jpg"));
    archive += member(key + ".cls", std::to_string(i % 3) + "\n") + member(key + ".json", "{}");
  }
  return archive + std::string(1024, '\0');
}

TEST(WebDataset, SamplesAreMembersOfOneName) {
  const TemporaryDirectory directory;
  directory.write("train-0.tar", shard(0, 5));
  directory.write("train-1.tar", shard(5, 7));
  directory.write("val-0.tar", shard(20, 3));
  const OpenedData data = open_data("auto", directory.path(), options_of(8));
  EXPECT_EQ(data.kind, "webdataset");
  ASSERT_EQ(data.train->size(), 12);
  EXPECT_EQ(data.validation->size(), 3);
  EXPECT_EQ(data.train->info().classes, 3);
  const Batch batch = data.train->get(all_of(*data.train));
  for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(batch.target()[i].item<std::int64_t>(), i % 3);
  const auto order = epoch_order_of(data.train);
  ASSERT_TRUE(order);
  std::vector<std::int64_t> sorted = order(3);
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, all_of(*data.train));
  // A subset of the shards is also read shard by shard.
  const OpenedData split = open_data("webdataset", directory / "train-1.tar", options_of(8, 0.3));
  EXPECT_EQ(split.train->size() + split.validation->size(), 7);
  const TemporaryDirectory both;
  both.write("a.tar", shard(0, 40));
  both.write("b.tar", shard(40, 40));
  DataOptions options = options_of(8, 0.25);
  options.of_kind.edit<ImageOptions>().shuffle_window = 1;
  const auto part = open_data("webdataset", both.path(), options).train;
  const std::vector<std::int64_t> unmixed = epoch_order_of(part)(1);
  ASSERT_EQ(unmixed.size(), 60U);
  EXPECT_EQ(std::set<std::int64_t>(unmixed.begin(), unmixed.end()).size(), 60U);
  int jumps = 0;
  for (std::size_t i = 1; i < unmixed.size(); ++i) jumps += unmixed[i] != unmixed[i - 1] + 1 ? 1 : 0;
  EXPECT_LE(jumps, 1) << "a window of one sample leaves shards in order";
}

TEST(WebDataset, WhatIsMissingOrWrongIsNamed) {
  const TemporaryDirectory directory;
  const auto failure = [&](const std::string& archive) {
    const std::string path = directory.write("x.tar", archive);
    return message_of<DataError>([&] { open_data("webdataset", path, options_of(8)); });
  };
  const std::string& image = reference().file("plain.jpg");
  expect_facts(failure(member("a.jpg", image) + member("b.cls", "0")), {"x.tar'", "a", ".cls"});
  expect_facts(failure(member("a.cls", "0")), {"x.tar'", "a", ".jpg"});
  expect_facts(failure(member("a.jpg", image) + member("a.cls", "cat")), {"x.tar'", "a.cls", "offset"});
  expect_facts(failure(member("a.txt", "x")), {"x.tar'", "*.cls"});
  // Each member of a sample is read once, or is an error.
  const std::string whole = member("a.jpg", image) + member("a.cls", "0");
  expect_facts(failure(whole + member("a.png", image)), {"x.tar'", "a.png", "a.jpg"});
  expect_facts(failure(whole + member("a.cls", "1")), {"x.tar'", "a.cls", "second"});
  expect_facts(failure(whole + member("b.v2.jpg", image) + member("b.v2.cls", "1")),
               {"x.tar'", "b.v2.jpg", "'v2.jpg'"});
  expect_facts(failure(whole + member("b.jpg", "", '1', "gone.jpg") + member("b.cls", "1")),
               {"x.tar'", "b.jpg", "gone.jpg"});
  expect_facts(failure(whole + member("b.jpg", "", '2', "/tmp/a.jpg") + member("b.cls", "1")),
               {"x.tar'", "b.jpg", "/tmp/a.jpg"});
  expect_facts(failure(whole + member("b.jpg", "x", 'S') + member("b.cls", "1")),
               {"x.tar'", "b.jpg", "sparse"});
  expect_facts(failure(whole + member("b.jpg", "", '3') + member("b.cls", "1")), {"x.tar'", "b.jpg", "'3'"});
  expect_facts(failure(member("a.jpg", image).substr(0, 1024)), {"x.tar'", "offset 0"});
  std::string wrong = member("a.jpg", image);
  wrong[3] = 'x';
  expect_facts(failure(wrong), {"x.tar'", "offset 0", "checksum"});
}

TEST(WebDataset, ReadsLinksCapitalLettersAndMacFiles) {
  const TemporaryDirectory directory;
  const std::string& image = reference().file("plain.jpg");
  const std::string& other = reference().file("grey.png");
  const std::string archive = member("s/a.JPG", image) + member("s/._a.cls", "mac") + member("s/a.CLS", "0") +
                              member("s/b.Png", other) + member("s/.DS_Store", "x") + member("s/b.cls", "1") +
                              member("s/c.jpg", "", '1', "s/a.JPG") + member("s/c.cls", "", '1', "s/b.cls") +
                              member("s/d.jpg", "", '2', "../s/e.jpg") + member("s/d.cls", "2") +
                              member("s/e.jpg", "", '2', "c.jpg") + member("s/e.cls", "0") +
                              member("README", "text") + member("s/info.json", "{}");
  const std::string end(1024, '\0');
  // Two concatenated archives are read as one.
  directory.write("x.tar", archive + end + member("z.jpeg", other) + member("z.cls", "1") + end);
  directory.write("._x.tar", "Mac OS X");
  const OpenedData data = open_data("auto", directory.path(), options_of(8));
  ASSERT_EQ(data.train->size(), 6);
  const Batch batch = data.train->get(all_of(*data.train));
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 6; ++i) labels.push_back(batch.target()[i].item<std::int64_t>());
  EXPECT_EQ(labels, (std::vector<std::int64_t>{0, 1, 1, 2, 0, 1}));
}

TEST(Tar, ResolvesLinksAndExtendedHeaderSizes) {
  const auto parse = [](const std::string& archive) {
    return parse_tar({reinterpret_cast<const std::uint8_t*>(archive.data()), archive.size()}, "file");
  };
  const std::string long_target(140, 't');
  const auto record = [](const std::string& text) {  // for records of less than 100 bytes
    return std::to_string(text.size() + (text.size() < 7 ? 3 : 4)) + " " + text + "\n";
  };
  std::string sized = member("sized", "12345");
  sized.replace(124, 11, "00000000000");  // the size is only in the extended header
  sized.replace(148, 8, "        ");
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(sized[i]);
  std::snprintf(sized.data() + 148, 8, "%06o", sum);
  const std::vector<TarMember> members =
      parse(member("././@LongLink", long_target + '\0', 'L') + member("cut", "long") +
            member("././@LongLink", long_target + '\0', 'K') + member("link", "", '1', "cut") +
            member("PaxHeaders/x", record("size=5"), 'x') + sized + member("loop", "", '2', "loop") +
            member("PaxHeaders/x", record("GNU.sparse.major=1"), 'x') + member("sparse", "map") +
            member("last", "end"));
  ASSERT_EQ(members.size(), 6U);
  EXPECT_EQ(members[1].name, "link");
  EXPECT_EQ(members[1].offset, members[0].offset);
  EXPECT_EQ(members[1].size, 4U);
  EXPECT_EQ(members[2].size, 5U);
  expect_facts(members[3].unreadable, {"link", "'loop'"});
  expect_facts(members[4].unreadable, {"sparse"});
  EXPECT_EQ(members[5].name, "last");
  EXPECT_EQ(members[5].unreadable, "");
  expect_facts(message_of<DataError>([&] { parse(member("a", "1") + std::string(1024, '\0') + "garbage"); }),
               {"file'", "offset 2048", "end of the archive"});
}

TEST(Tar, LongNamesOfBothKindsAreRead) {
  const std::string name(150, 'n');
  const std::string record = " path=" + name + "\n";
  const std::string archive = member("././@LongLink", name + '\0', 'L') + member("cut", "one") +
                              member("PaxHeaders/x", std::to_string(record.size() + 3) + record, 'x') +
                              member("cut", "two") + member("short", "three");
  const std::vector<TarMember> members =
      parse_tar({reinterpret_cast<const std::uint8_t*>(archive.data()), archive.size()}, "file");
  ASSERT_EQ(members.size(), 3U);
  EXPECT_EQ(members[0].name, name);
  EXPECT_EQ(members[1].name, name);
  EXPECT_EQ(members[2].name, "short");
  EXPECT_EQ(archive.substr(members[1].offset, members[1].size), "two");
}

TEST(Tar, DamagedArchivesAreRefusedOrWhole) {
  const std::string good = shard(0, 4);
  RandomStream random(9);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string archive = good;
    if (round % 2 == 0) archive.resize(random.below(archive.size()));
    // Damages headers, where damage matters.
    for (int i = 0; i < 2 && archive.size() > 512; ++i)
      archive[random.below(archive.size() / 512) * 512 + random.below(512)] = static_cast<char>(random());
    try {
      for (const TarMember& each :
           parse_tar({reinterpret_cast<const std::uint8_t*>(archive.data()), archive.size()}, "file"))
        EXPECT_LE(each.offset + each.size, archive.size());
    } catch (const DataError& error) {
      expect_facts(error.what(), {"file'", "offset"});
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace rondo::image_data_test
