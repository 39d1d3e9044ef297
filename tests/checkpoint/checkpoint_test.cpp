#include "rondo/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/script.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "tests/temporary_directory.h"

namespace rondo::checkpoint_test {
namespace {

namespace fs = std::filesystem;

// A module with parameters, buffers (one of them an integer), a shared weight, and dropout, which draws
// random numbers.
struct SmallNetImpl : torch::nn::Module {
  explicit SmallNetImpl(std::int64_t width = 6) {
    first = register_module("first", torch::nn::Linear(4, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    last = register_module("last", torch::nn::Linear(torch::nn::LinearOptions(width, 4).bias(false)));
    tied = register_parameter("tied", last->weight);
  }
  at::Tensor forward(at::Tensor x) {
    x = dropout(torch::relu(norm(first(x))));
    return last(x) + at::linear(x, tied);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  at::Tensor tied;
};
TORCH_MODULE(SmallNet);

using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(SmallNet&)>;

std::unique_ptr<torch::optim::Optimizer> two_groups(SmallNet& net) {
  using torch::optim::AdamWOptions;
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{net->first->weight, net->tied},
                      std::make_unique<AdamWOptions>(AdamWOptions(0.01).weight_decay(0.3)));
  groups.emplace_back(std::vector{net->first->bias, net->norm->weight, net->norm->bias},
                      std::make_unique<AdamWOptions>(AdamWOptions(0.02).weight_decay(0.0)));
  return std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(0.01));
}

template <class Optimizer, class Options>
OptimizerFactory single_group(Options options) {
  return [options](SmallNet& net) {
    std::vector<at::Tensor> parameters{net->first->weight, net->first->bias, net->norm->weight,
                                       net->norm->bias, net->tied};
    return std::make_unique<Optimizer>(parameters, options);
  };
}

struct TrainingRun {
  explicit TrainingRun(const OptimizerFactory& make, std::uint64_t seed = 1) {
    torch::manual_seed(seed);
    net = SmallNet();
    optimizer = make(net);
  }
  double step() {
    optimizer->zero_grad();
    const at::Tensor x = torch::randn({8, 4});
    const at::Tensor loss = (net(x) - x).square().mean();
    loss.backward();
    optimizer->step();
    return loss.item<double>();
  }
  TrainingState state() {
    TrainingState s;
    s.model = named_tensors(*net);
    s.optimizers = {{"optimizer", optimizer.get()}};
    return s;
  }
  SmallNet net{nullptr};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

class EveryOptimizer : public ::testing::TestWithParam<std::pair<const char*, OptimizerFactory>> {};

// Proves that the state is complete: the losses after a resume equal those of the uninterrupted run, bit by
// bit.
TEST_P(EveryOptimizer, ResumesBitForBit) {
  const TemporaryDirectory directory;
  TrainingRun uninterrupted(GetParam().second);
  for (int i = 0; i < 5; ++i) uninterrupted.step();
  uninterrupted.optimizer->param_groups()[0].options().set_lr(0.005);
  TrainingState saved = uninterrupted.state();
  saved.random_states = {random_state()};
  saved.values = {{"step", 5}, {"learning_rate", 0.1 + 0.2}};
  save_checkpoint(directory.path(), 5, saved);
  std::vector<double> expected;
  for (int i = 0; i < 5; ++i) expected.push_back(uninterrupted.step());

  TrainingRun resumed(GetParam().second, 99);
  resumed.step();  // creates a state that loading must replace
  TrainingState loaded = resumed.state();
  load_checkpoint(directory.path(), loaded);
  EXPECT_EQ(loaded.values, saved.values);
  ASSERT_EQ(loaded.random_states.size(), 1U);
  set_random_state(loaded.random_states[0]);
  for (const double loss : expected) EXPECT_EQ(resumed.step(), loss);
}

using namespace torch::optim;
INSTANTIATE_TEST_SUITE_P(
    Checkpoint, EveryOptimizer,
    ::testing::Values(std::pair{"sgd", single_group<SGD>(SGDOptions(0.1))},
                      std::pair{"momentum", single_group<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
                      std::pair{"adam", single_group<Adam>(AdamOptions(0.01).betas({0.8, 0.9}))},
                      std::pair{"amsgrad", single_group<AdamW>(AdamWOptions(0.01).amsgrad(true))},
                      std::pair{"groups", OptimizerFactory(two_groups)},
                      std::pair{"rmsprop",
                                single_group<RMSprop>(RMSpropOptions(0.01).momentum(0.5).centered(true))},
                      std::pair{"adagrad", single_group<Adagrad>(AdagradOptions(0.01).lr_decay(0.1))}),
    [](const auto& info) { return std::string(info.param.first); });

TEST(Checkpoint, UnknownOptimizerIsStoredAsArchive) {
  const TemporaryDirectory directory;
  const OptimizerFactory make = single_group<LBFGS>(LBFGSOptions(0.1));
  TrainingRun run(make);
  save_checkpoint(directory.path(), 1, run.state());
  TrainingState state = run.state();
  try {
    load_checkpoint(directory.path(), state);
    ADD_FAILURE() << "libtorch has read an archive of a checkpoint that nobody trusts";
  } catch (const UsageError& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("'optimizer/archive'"), std::string::npos) << refusal.what();
    EXPECT_NE(std::string(refusal.what()).find("trust_archives"), std::string::npos) << refusal.what();
  }
  state.trust_archives = true;
  load_checkpoint(directory.path(), state);
  TrainingRun other(single_group<SGD>(SGDOptions(0.1)));
  TrainingState wrong = other.state();
  EXPECT_NE(error_of([&] { load_checkpoint(directory.path(), wrong); }).find("saved by archive, here is SGD"),
            std::string::npos);
}

TEST(Checkpoint, SharedParametersAreStoredOnceAndStayShared) {
  const TemporaryDirectory directory;
  TrainingRun run(two_groups);
  const fs::path path = save_checkpoint(directory.path(), 1, run.state());
  const SafetensorsFile file(path / "model.safetensors");
  EXPECT_TRUE((file.find("tied") != nullptr) != (file.find("last.weight") != nullptr));

  TrainingRun other(two_groups, 5);
  TrainingState state = other.state();
  load_checkpoint(path, state);
  EXPECT_TRUE(other.net->tied.is_same(other.net->last->weight));
  EXPECT_TRUE(at::equal(other.net->tied, run.net->tied));
}

TEST(Checkpoint, KeepsNewestAndRemovesAbandonedWrites) {
  const TemporaryDirectory directory;
  TrainingRun run(two_groups);
  fs::create_directory(directory / ".tmp-step-00000001-dead");
  for (int step = 1; step <= 4; ++step) save_checkpoint(directory.path(), step, run.state(), 2);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory.path()))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"step-00000003", "step-00000004"}));
}

TEST(Checkpoint, OfAnotherModelNamesFirstDifferentTensor) {
  const TemporaryDirectory directory;
  TrainingRun run(two_groups);
  save_checkpoint(directory.path(), 1, run.state());
  const auto load_into = [&](NamedTensors model) {
    TrainingState state;
    state.model = std::move(model);
    return error_of([&] { load_checkpoint(directory.path(), state); });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const at::Tensor before = run.net->first->weight.detach().clone();

  contains(load_into(named_tensors(*SmallNet(7))),
           "is of another model: tensor 'tied' has dtype Float and shape [4, 6] in it, and dtype Float and "
           "shape [4, 7] in the model");
  NamedTensors more = named_tensors(*run.net);
  more.push_back({"head.weight", torch::zeros({2})});
  contains(load_into(more), "tensor 'head.weight' is missing in it");
  NamedTensors fewer = named_tensors(*run.net);
  std::erase_if(fewer, [](const NamedTensor& t) { return t.name == "norm.running_mean"; });
  contains(load_into(fewer), "tensor 'norm.running_mean' is in it and not in the model");
  NamedTensors other_dtype = named_tensors(*run.net);
  other_dtype[1].tensor = other_dtype[1].tensor.to(at::kDouble);
  contains(load_into(other_dtype), "tensor '" + other_dtype[1].name + "' has dtype Float");
  EXPECT_TRUE(at::equal(before, run.net->first->weight)) << "a refused checkpoint changed the model";
}

TEST(Checkpoint, OfAnotherOptimizerNamesWhatDiffers) {
  const TemporaryDirectory directory;
  TrainingRun run(two_groups);
  run.step();
  save_checkpoint(directory.path(), 1, run.state());
  const auto load_with = [&](const OptimizerFactory& make) {
    TrainingRun other(make);
    TrainingState state = other.state();
    return error_of([&] { load_checkpoint(directory.path(), state); });
  };
  EXPECT_NE(load_with(single_group<SGD>(SGDOptions(0.1))).find("saved by AdamW, here is SGD"),
            std::string::npos);
  EXPECT_NE(
      load_with(single_group<AdamW>(AdamWOptions(0.1))).find("it has 2 groups of parameters, here are 1"),
      std::string::npos);
  const auto swapped = [](SmallNet& net) {
    auto optimizer = two_groups(net);
    std::swap(optimizer->param_groups()[1].params()[0], optimizer->param_groups()[1].params()[1]);
    return optimizer;
  };
  EXPECT_NE(load_with(swapped).find("parameter 0 of group 1 is 'first.bias', here it is 'norm.weight'"),
            std::string::npos);
  TrainingState renamed = run.state();
  renamed.optimizers[0].name = "generator";
  EXPECT_NE(
      error_of([&] { load_checkpoint(directory.path(), renamed); }).find("has no optimizer 'generator'"),
      std::string::npos);
  TrainingState foreign = run.state();
  std::erase_if(foreign.model, [](const NamedTensor& t) { return t.name == "first.weight"; });
  EXPECT_NE(error_of([&] { save_checkpoint(directory.path(), 2, foreign); }).find("not in the model"),
            std::string::npos);
}

TEST(Checkpoint, DamageIsNamedAndChangesNothing) {
  const TemporaryDirectory directory;
  TrainingRun run(two_groups);
  run.step();
  const fs::path path = save_checkpoint(directory.path(), 1, run.state());
  run.step();
  const at::Tensor before = run.net->first->weight.detach().clone();
  TrainingState state = run.state();
  const std::string good = read_all(path / "optimizer.safetensors");
  std::string bad = good;
  bad[bad.size() - 3] ^= 4;
  write_all(path / "optimizer.safetensors", bad);
  const std::string error = error_of([&] { load_checkpoint(path, state); });
  EXPECT_NE(error.find("is damaged: optimizer.safetensors, tensor 'optimizer/"), std::string::npos) << error;
  write_all(path / "optimizer.safetensors", good.substr(0, 100));
  EXPECT_NE(error_of([&] { load_checkpoint(path, state); }).find("has 100 bytes"), std::string::npos);
  EXPECT_NE(error_of([&] { load_checkpoint(directory / "nowhere", state); }).find("does not exist"),
            std::string::npos);
  EXPECT_TRUE(at::equal(before, run.net->first->weight));
}

TEST(Checkpoint, SeveralModelsAndOptimizersInOne) {
  const TemporaryDirectory directory;
  TrainingRun generator(two_groups);
  TrainingRun discriminator(single_group<SGD>(SGDOptions(0.1).momentum(0.5)), 2);
  const auto joint = [&] {
    TrainingState state;
    state.model = named_tensors(*generator.net, "generator.");
    for (const NamedTensor& t : named_tensors(*discriminator.net, "discriminator.")) state.model.push_back(t);
    state.optimizers = {{"generator", generator.optimizer.get()},
                        {"discriminator", discriminator.optimizer.get()}};
    return state;
  };
  generator.step();
  discriminator.step();
  save_checkpoint(directory.path(), 1, joint());
  const at::Tensor weight = discriminator.net->first->weight.detach().clone();
  discriminator.step();
  TrainingState state = joint();
  load_checkpoint(directory.path(), state);
  EXPECT_TRUE(at::equal(weight, discriminator.net->first->weight));
}

TEST(Checkpoint, TensorsOfAnyStrideAndDtypeComeBack) {
  const TemporaryDirectory directory;
  const at::Tensor base = torch::randn({6, 5});
  const NamedTensors tensors{
      {"transposed", base.t()},  {"half", base.to(at::kHalf)},    {"bfloat16", base.to(at::kBFloat16)},
      {"bool", base > 0},        {"empty", torch::zeros({0, 3})}, {"scalar", torch::tensor(3.5, at::kDouble)},
      {"long", torch::arange(7)}};
  write_tensors(directory / "t.safetensors", tensors);
  NamedTensors read = map_tensors(directory / "t.safetensors");
  ASSERT_EQ(read.size(), tensors.size());
  for (const NamedTensor& t : tensors) {
    const auto found =
        std::find_if(read.begin(), read.end(), [&](const NamedTensor& r) { return r.name == t.name; });
    ASSERT_NE(found, read.end()) << t.name;
    EXPECT_TRUE(at::equal(found->tensor, t.tensor)) << t.name;
  }
  const at::Tensor kept = read[0].tensor;
  read.clear();
  EXPECT_TRUE(kept.sum().defined()) << "the mapping must live as long as a tensor of it";
}

// A file stores each piece under a unique key, which may differ from the tensor's name.
TEST(Checkpoint, PiecesAndNumberedTensorsKeepTheirNames) {
  const TemporaryDirectory directory;
  const at::Tensor all = at::arange(6, at::kFloat);
  write_shards(directory / "part.safetensors",
               {flat_shard("w", {6}, 0, all.narrow(0, 0, 2)), flat_shard("w", {6}, 2, all.narrow(0, 2, 4)),
                full_shard("w#2", all.narrow(0, 0, 3)), full_shard("v", all), full_shard("v", all)});
  std::map<std::string, std::vector<std::int64_t>> elements;
  for (const Shard& shard : map_shards(directory / "part.safetensors").shards)
    elements[shard.name].push_back(shard.elements());
  for (auto& [name, counts] : elements) std::sort(counts.begin(), counts.end());
  EXPECT_EQ(elements,
            (std::map<std::string, std::vector<std::int64_t>>{{"v", {6, 6}}, {"w", {2, 4}}, {"w#2", {3}}}));
}

TEST(Checkpoint, RandomStateOfAnotherSizeIsRefused) {
  EXPECT_NE(error_of([] { set_random_state(torch::zeros({3}, at::kByte)); }).find("has 3 elements"),
            std::string::npos);
}

// The CUDA generator's state of 16 bytes follows the CPU's.
TEST(Checkpoint, DeviceRandomStateRestoresOnTheCpu) {
  const at::Tensor state = random_state();
  const at::Tensor expected = torch::rand({5});
  set_random_state(at::cat({state, torch::zeros({16}, at::kByte)}));
  EXPECT_TRUE(torch::equal(torch::rand({5}), expected));
  EXPECT_NE(error_of([&] {
              set_random_state(at::cat({state, torch::zeros({17}, at::kByte)}));
            }).find("another kind of device"),
            std::string::npos);
}

TEST(Checkpoint, ScriptModulesHaveNamedTensorsToo) {
  torch::jit::Module module("Net");
  module.register_parameter("weight", torch::ones({2}), false);
  module.register_buffer("count", torch::zeros({1}));
  const NamedTensors tensors = named_tensors(module, "net.");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "net.weight");
  EXPECT_EQ(tensors[1].name, "net.count");
}

}  // namespace
}  // namespace rondo::checkpoint_test
