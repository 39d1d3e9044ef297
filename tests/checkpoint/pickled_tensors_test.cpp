#include "rondo/checkpoint/pickled_tensors.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::pickled_tensors_test {
namespace {

using namespace std::string_literals;

// Returns two floats for the key "0".
PickledRecord two_floats(const std::string& key) {
  if (key != "0") throw DataError(str("no record ", key));
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2});
  return {std::as_bytes(std::span(*owner)), owner};
}

// Returns the pickle of {"w": a tensor of `size` elements from `offset` on with stride `stride`}.
std::string pickle_of(const std::string& offset, const std::string& size, const std::string& stride) {
  return "\x80\x02}U\x01w"s + "ctorch._utils\n_rebuild_tensor_v2\n(" +
         "(U\x07storagectorch\nFloatStorage\nU\x01"s + "0U\x03"s + "cpuK\x02tQ" + offset + "(" + size + "t(" +
         stride + "t\x89}tRs.";
}

std::string error_of(const std::string& pickle) {
  try {
    read_pickled_tensors(pickle, two_floats, "net.pt");
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}

TEST(PickledTensors, ReadsATensorAndItsPlace) {
  const NamedTensors tensors =
      read_pickled_tensors(pickle_of("K\x01", "K\x01", "K\x01"), two_floats, "net.pt");
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "w");
  EXPECT_TRUE(at::equal(tensors[0].tensor, at::tensor({2.0F})));
  EXPECT_EQ(
      read_pickled_tensors(pickle_of("K\x00"s, "K\x00"s, "K\x01"), two_floats, "net.pt")[0].tensor.numel(),
      0);
}

TEST(PickledTensors, NothingReachesBeyondItsRecord) {
  for (const auto& [offset, size, stride] :
       {std::tuple{"K\x00"s, "K\x03"s, "K\x01"s},
        {"K\x02"s, "K\x01"s, "K\x01"s},
        {"K\x00"s, "K\x02"s, "K\x02"s},
        {"J\xff\xff\xff\xff"s, "K\x01"s, "K\x01"s},
        {"K\x00"s, "J\xff\xff\xff\xff"s, "K\x01"s},
        {"K\x00"s, "K\x02"s, "J\xff\xff\xff\xff"s},
        {"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s, "K\x02"s, "K\x01"s},
        {"K\x00"s, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s,
         "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s}}) {
    EXPECT_TRUE(error_of(pickle_of(offset, size, stride)).starts_with("net.pt")) << offset << size << stride;
  }
}

TEST(PickledTensors, EveryCutIsAnError) {
  const std::string whole = pickle_of("K\x00"s, "K\x02"s, "K\x01"s);
  EXPECT_EQ(error_of(whole), "");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_TRUE(error_of(whole.substr(0, length)).starts_with("net.pt")) << length;
}

TEST(PickledTensors, NothingIsCalled) {
  // os.system("..."): becomes an object without tensors, and nothing is looked up.
  EXPECT_EQ(read_pickled_tensors("cos\nsystem\n(U\x04true"s + "tR.", two_floats, "net.pt").size(), 0U);
  // A class that restores itself by code from a tuple.
  const std::string error = error_of("c__torch__\nNet\n)\x81(K\x01tb.");
  EXPECT_NE(error.find("__setstate__"), std::string::npos) << error;
  EXPECT_NE(error.find("__torch__.Net"), std::string::npos) << error;
  EXPECT_NE(error_of("(S'text'\n."), "");  // an instruction that archives of tensors do not use
}

TEST(PickledTensors, DepthAndCyclesEnd) {
  std::string deep = "}";
  for (int i = 0; i < 100'000; ++i) deep += "U\x01"s + "a}";
  for (int i = 0; i < 100'000; ++i) deep += "s";
  EXPECT_NE(error_of(deep + ".").find("deep"), std::string::npos);
  EXPECT_NE(error_of("}q\x00"s + "U\x01"s + "ah\x00s."s).find("deep"),
            std::string::npos);  // a dict that contains itself
  // Each dict contains the previous one twice: 2^60 tensors.
  std::string doubling = "}q\x00"s;
  for (int i = 0; i < 60; ++i) {
    const std::string before(1, static_cast<char>(i));
    doubling += "}(U\x01"s + "ah" + before + "U\x01"s + "bh" + before + "uq" +
                std::string(1, static_cast<char>(i + 1));
  }
  EXPECT_NE(error_of(doubling + "."), "");
}

}  // namespace
}  // namespace rondo::pickled_tensors_test
