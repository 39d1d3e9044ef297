#include "rondo/env/device_name.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/errors.h"

namespace rondo::device_name_test {
namespace {

using testing::expect_facts;
using testing::message_of;

TEST(DeviceName, NamesAKindAndAnIndex) {
  EXPECT_EQ(parse_device_name("auto", "--device"), (DeviceName{"auto"}));
  EXPECT_EQ(parse_device_name("cpu", "--device"), (DeviceName{"cpu"}));
  EXPECT_EQ(parse_device_name("cuda", "--device"), (DeviceName{"cuda"}));
  EXPECT_EQ(parse_device_name("cuda:0", "--device"), (DeviceName{"cuda", 0}));
  EXPECT_EQ(parse_device_name("cuda:127", "--device"), (DeviceName{"cuda", 127}));
}

TEST(DeviceName, RefusesOtherTexts) {
  for (const char* text :
       {"", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1 ", "cuda:x", "cuda:128", "cuda:99999999999",
        "cuda:0,cuda:1", "cpu:0", "auto:0", "cuda1", "cuda:+1", "cuda:0x1"}) {
    expect_facts(message_of<UsageError>([&] { parse_device_name(text, "--device"); }),
                 {"--device", text, "auto", "cpu", "cuda:N"});
  }
}

}  // namespace
}  // namespace rondo::device_name_test
