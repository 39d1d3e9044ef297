#include "rondo/checkpoint/weights.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <map>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/tensor_file.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::weights_test {
namespace {

// A module with nested modules, parameters and buffers.
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

TEST(Weights, FloatingPointTypesAreConverted) {
  const TemporaryDirectory directory;
  const Net source;
  NamedTensors halves;
  for (const NamedTensor& t : named_tensors(*source)) {
    const bool converts = t.tensor.is_floating_point();
    halves.push_back({t.name, converts ? t.tensor.detach().to(at::kBFloat16) : t.tensor});
  }
  write_tensors(directory / "half.safetensors", halves);
  const Net target;
  load_weights(directory / "half.safetensors", named_tensors(*target));
  EXPECT_TRUE(at::equal(target->scale.detach(), source->scale.detach().to(at::kBFloat16).to(at::kFloat)));
}

TEST(Weights, EveryTypeInAnArchiveIsReadBack) {
  const TemporaryDirectory directory;
  for (const at::ScalarType type : {at::kByte, at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn,
                                    at::kFloat8_e5m2, at::kHalf, at::kComplexFloat, at::kBool}) {
    const at::Tensor values = at::tensor({0, 1, 1, 0}).to(type);
    write_archive(directory / "typed.pt", {{"values", values}});
    const NamedTensors back = read_weights(directory / "typed.pt");
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(back[0].tensor.scalar_type(), type);
    EXPECT_TRUE(at::equal(back[0].tensor.view(at::kByte), values.view(at::kByte))) << type;
    std::filesystem::remove(directory / "typed.pt");
  }
}

TEST(Weights, PrefixMismatchSuggestsTheRule) {
  const TemporaryDirectory directory;
  const Net net;
  NamedTensors prefixed;
  for (const NamedTensor& t : named_tensors(*net)) prefixed.push_back({"module." + t.name, t.tensor});
  write_tensors(directory / "prefixed.safetensors", prefixed);
  const auto load = [&](const NamedTensors& model) {
    return testing::message_of<DataError>([&] { load_weights(directory / "prefixed.safetensors", model); });
  };
  testing::expect_facts(load(named_tensors(*net)),
                        {"module.body.0.weight", "body.0.weight", "module.*=*", "init-rename"});
  NamedTensors deeper;
  for (const NamedTensor& t : prefixed) deeper.push_back({"net." + t.name, t.tensor});
  testing::expect_facts(load(deeper), {"*=net.*"});
}

// Hugging Face's layout of models in several files.
TEST(Weights, PartsWithAnIndexAreReadAsOne) {
  const TemporaryDirectory directory;
  const Net source;
  const NamedTensors all = named_tensors(*source);
  std::map<std::string, NamedTensors> parts;
  nlohmann::json map;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string part =
        i % 2 == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    parts[part].push_back(all[i]);
    map[all[i].name] = part;
  }
  for (const auto& [name, tensors] : parts) write_tensors(directory / name, tensors);
  const auto index = [&](const nlohmann::json& weight_map) {
    write_all(directory / "model.safetensors.index.json", nlohmann::json{{"weight_map", weight_map}}.dump());
  };
  index(map);
  for (const char* name : {".", "model.safetensors.index.json"}) {
    const Net target;
    load_weights(directory / name, named_tensors(*target));
    expect_same(source, target);
  }
  const auto fault = [&](const std::string& tensor, const std::string& file) {
    nlohmann::json wrong = map;
    wrong[tensor] = file;
    index(wrong);
    return testing::message_of<DataError>([&] { read_weights(directory.path()); });
  };
  testing::expect_facts(fault("scale", "gone.safetensors"), {"index.json", "gone.safetensors"});
  testing::expect_facts(fault("scale", "../secret"), {"index.json", "scale", "../secret"});
  testing::expect_facts(fault("more", "model-00001-of-00002.safetensors"), {"00001", "more"});
}

TEST(Weights, RefusesPythonPicklesByName) {
  const TemporaryDirectory directory;
  write_all(
      directory / "old.pt",
      std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e\x80\x02M\xe9\x03.", 19));
  write_all(directory / "plain.pt", "\x80\x04\x95rubbish");
  const auto message = [&](const char* name) {
    return testing::message_of<DataError>([&] { read_weights(directory / name); });
  };
  testing::expect_facts(message("old.pt"), {"old.pt", "before PyTorch 1.6", "torch.save"});
  testing::expect_facts(message("plain.pt"), {"plain.pt", "pickle", "torch.save"});
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
