#include "rondo/format/safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::safetensors_test {
namespace {

using namespace std::string_literals;

std::string with_header(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, '\0');
}

SafetensorsHeader parse(const std::string& content) {
  return parse_safetensors(as_bytes(content), "x.safetensors");
}

std::string error_of(const std::string& content) {
  try {
    parse(content);
  } catch (const DataError& e) {
    return e.what();
  }
  return "accepted";
}

// Example from the tests of the reference implementation.
TEST(Safetensors, ReadsTheReferenceExample) {
  const std::string content =
      "<\0\0\0\0\0\0\0{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"s;
  const SafetensorsHeader header = parse(content);
  ASSERT_EQ(header.tensors.size(), 1U);
  EXPECT_EQ(header.tensors[0].name, "test");
  EXPECT_EQ(header.tensors[0].dtype, Dtype::int32);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(header.data_offset, 68U);
}

TEST(Safetensors, RoundTripsEveryDtypeAndShape) {
  const TemporaryDirectory directory;
  std::vector<TensorSpec> specs;
  for (int d = 0; d <= static_cast<int>(Dtype::complex64); ++d) {
    const auto dtype = static_cast<Dtype>(d);
    specs.push_back({str("matrix.", to_string(dtype)), dtype, {3, 5}});
    specs.push_back({str("scalar.", to_string(dtype)), dtype, {}});
    specs.push_back({str("empty.", to_string(dtype)), dtype, {0, 7}});
  }
  SafetensorsWriter writer(directory / "all.safetensors", specs, {{"made by", "a \"test\""}});
  for (const TensorEntry& tensor : std::vector(writer.order())) {
    std::vector<std::byte> data(tensor.bytes());
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i + tensor.name.size());
    // In two pieces, like a streaming writer.
    writer.write(tensor.name, std::span(data).first(data.size() / 2));
    writer.write(tensor.name, std::span(data).subspan(data.size() / 2));
  }
  const FileRecord record = writer.finish();
  EXPECT_EQ(record.name, "all.safetensors");
  EXPECT_EQ(record.bytes, std::filesystem::file_size(directory / "all.safetensors"));
  EXPECT_EQ(record.tensors.size(), specs.size());

  const SafetensorsFile file(directory / "all.safetensors");
  EXPECT_EQ(file.metadata().at("made by"), "a \"test\"");
  for (const TensorSpec& spec : specs) {
    const TensorEntry* entry = file.find(spec.name);
    ASSERT_NE(entry, nullptr) << spec.name;
    EXPECT_EQ(entry->dtype, spec.dtype);
    EXPECT_EQ(entry->shape, spec.shape);
    const auto data = file.data(*entry);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data.data()) % element_size(spec.dtype), 0U) << "not aligned";
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_EQ(data[i], static_cast<std::byte>(i + spec.name.size()));
    }
  }
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
  const TemporaryDirectory directory;
  SafetensorsWriter(directory / "none.safetensors", {}).finish();
  EXPECT_TRUE(SafetensorsFile(directory / "none.safetensors").tensors().empty());
}

TEST(Safetensors, RejectsWhatTheFormatForbids) {
  struct Case {
    std::string content;
    std::vector<const char*> facts;
  };
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::vector<Case> cases{
      {"", {"8 bytes"}},
      {"1234567", {"7 bytes"}},
      {std::string(8, '\xff'), {"100000000"}},
      {"\x40\0\0\0\0\0\0\0{}"s, {"header", "64 bytes"}},
      {with_header("", 0), {"'{'"}},
      {with_header("[]", 0), {"'{'"}},
      {with_header("{} x", 0), {"JSON"}},
      {with_header("{\"a\":", 0), {"JSON", "byte"}},
      {with_header("{\"\xff\":1}", 0), {"JSON"}},
      {with_header(good, 7), {"8 bytes", "7"}},
      {with_header(good, 9), {"8 bytes", "9"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), {"'a'", "hole"}},
      {with_header(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
           12),
       {"'b'", "offset 4"}},
      {with_header(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
           16),
       {"\"a\"", "twice"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
       {"float32[3]", "12 bytes"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), {"[8, 0)"}},
      {with_header(R"({"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}})", 8), {"dtype", "\"F31\""}},
      {with_header(R"({"a":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", 8), {"dtype", "32"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), {"shape"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), {"shape"}},
      {with_header(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), {"shape", "list"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       {"2^63 bytes"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), {"data_offsets"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-1,8]}})", 8), {"data_offsets"}},
      {with_header(R"({"a":{"dtype":"F32","shape":[2]}})", 8), {"dtype", "shape", "data_offsets"}},
      {with_header(R"({"a":3})", 8), {"dtype", "shape", "data_offsets"}},
      {with_header(R"({"__metadata__":{"a":3}})", 0), {"'a'", "string"}},
      {with_header(R"({"__metadata__":"a"})", 0), {"__metadata__", "object"}},
  };
  for (const Case& c : cases) {
    const std::string error = error_of(c.content);
    testing::expect_facts(error, c.facts);
    EXPECT_TRUE(error.starts_with("x.safetensors")) << error;
  }
}

// For any bytes, the parser either accepts a file whose tensors cover the data or throws DataError.
TEST(Safetensors, SurvivesRandomDamage) {
  const std::string good =
      with_header(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
                  11);
  RandomStream random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = good;
    for (std::uint64_t i = 0; i <= random.below(3); ++i) {
      damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    }
    if (random.below(4) == 0) damaged.resize(random.below(damaged.size()));
    try {
      std::uint64_t total = 0;
      for (const TensorEntry& tensor : parse(damaged).tensors) total += tensor.bytes();
      EXPECT_LE(total, damaged.size());
    } catch (const DataError&) {
      continue;
    }
  }
}

TEST(Safetensors, WriterChecksItsCaller) {
  const TemporaryDirectory directory;
  const std::vector<std::byte> data(8);
  EXPECT_THROW(SafetensorsWriter(directory / "a", {{"x", Dtype::float32, {2}}, {"x", Dtype::float32, {2}}}),
               UsageError);
  EXPECT_THROW(SafetensorsWriter(directory / "b", {{"__metadata__", Dtype::float32, {2}}}), UsageError);
  EXPECT_THROW(SafetensorsWriter(directory / "c", {{"x", Dtype::float32, {-2}}}), UsageError);
  SafetensorsWriter writer(directory / "d", {{"x", Dtype::float32, {2}}});
  EXPECT_THROW(writer.write("y", data), UsageError);
  EXPECT_THROW(writer.write("x", std::vector<std::byte>(9)), UsageError);
  EXPECT_THROW(writer.finish(), UsageError);
  writer.write("x", data);
  EXPECT_THROW(writer.write("x", data), UsageError);
  EXPECT_THROW(SafetensorsWriter(directory / "d", {}), Error) << "must not overwrite";
  EXPECT_THROW(SafetensorsFile(directory / "missing"), DataError);
}

}  // namespace
}  // namespace rondo::safetensors_test
