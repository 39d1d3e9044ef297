#include "rondo/checkpoint/weights.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/tensor_file.h"
#include "tests/temporary_directory.h"

namespace rondo::weights_test {
namespace {

// Modules inside modules, parameters and buffers.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    body = register_module("body", torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                                                         torch::nn::Linear(4, 2)));
    scale = register_parameter("scale", torch::randn({2}));
  }
  torch::nn::Sequential body{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Net);

void expect_same(const Net& a, const Net& b) {
  const NamedTensors left = named_tensors(*a);
  const NamedTensors right = named_tensors(*b);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i)
    EXPECT_TRUE(at::equal(left[i].tensor, right[i].tensor)) << left[i].name;
}

TEST(Weights, LoadFromArchiveSafetensorsFileAndCheckpoint) {
  const TemporaryDirectory directory;
  const Net source;
  torch::save(source, (directory / "net.pt").string());
  write_tensors(directory / "net.safetensors", named_tensors(*source));
  TrainingState state;
  state.model = named_tensors(*source);
  save_checkpoint(directory / "run/checkpoints", 3, state);
  for (const char* name :
       {"net.pt", "net.safetensors", "run", "run/checkpoints", "run/checkpoints/step-00000003"}) {
    SCOPED_TRACE(name);
    const Net target;
    load_weights(directory / name, named_tensors(*target));
    expect_same(source, target);
  }
}

TEST(Weights, ArchivesWeWriteAreReadByLibtorch) {
  const TemporaryDirectory directory;
  const Net source;
  write_archive(directory / "net.pt", named_tensors(*source));
  Net target;
  torch::load(target, (directory / "net.pt").string());
  expect_same(source, target);
}

TEST(Weights, BadFilesAreNamed) {
  const TemporaryDirectory directory;
  const Net net;
  write_all(directory / "text", "hello, this is no model");
  write_all(directory / "zip", std::string("PK\x03\x04", 4) + "rubbish");
  write_all(directory / "empty", "");
  torch::save(torch::nn::Linear(3, 5), (directory / "other.pt").string());
  for (const char* name : {"text", "zip", "empty", "other.pt", "missing", "."}) {
    try {
      load_weights(directory / name, named_tensors(*net));
      FAIL() << name;
    } catch (const DataError& e) {
      EXPECT_NE(std::string(e.what()).find(directory.path().string()), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace rondo::weights_test
