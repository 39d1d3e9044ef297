// A training whose gradients pass a codec, interrupted and resumed from its checkpoint.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/train/collective_checkpoint.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"
#include "tests/train/trained_weights.h"

namespace rondo::codec_resume_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::run_ranks;

constexpr std::int64_t kSteps = 8;
constexpr std::int64_t kInterrupted = 4;

// Returns a model with enough parameters for several buckets, in which three ranks encode sums too
// (docs/codecs.md).
Model wide_model(std::int64_t width = 600) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(7);
  auto module = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(8, width), torch::nn::Tanh(),
                                                            torch::nn::Linear(width, 8));
  Model model;
  model.name = "wide";
  model.config = nlohmann::json::object();
  model.forward = [raw = module.get()](const at::Tensor& input) { return raw->forward(input); };
  model.module = module;
  return model;
}

std::unique_ptr<Strategy> ddp_with(const Context& context, const std::string& codec) {
  DdpStrategyOptions options;
  options.codec = codec;
  options.bucket_bytes = KiB(4);
  options.first_bucket_bytes = KiB(1);
  return all_strategies().make("ddp", context, options);
}

// Trains from `from` (a checkpoint or empty) to step `until`, and saves to `to` if it is not empty.
std::vector<at::Tensor> train_with(Strategy& strategy, const Model& model, std::int64_t until,
                                   const std::filesystem::path& from, const std::filesystem::path& to) {
  Trainer trainer(strategy, model, adamw(), cross_entropy);
  if (!from.empty()) trainer.restore(from);
  trainer.fit(std::make_shared<Digits>(64), {.steps = until, .batch_size = 4});
  if (!to.empty()) trainer.save(to, 1);
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& p : model.module->parameters()) parameters.push_back(p.detach().clone());
  return parameters;
}

std::vector<at::Tensor> train(Context& context, const std::string& codec, std::int64_t until,
                              const std::filesystem::path& from, const std::filesystem::path& to) {
  const auto strategy = ddp_with(context, codec);
  return train_with(*strategy, wide_model(), until, from, to);
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

TEST(CodecResume, IsBitEqualAtTheSameWorldSize) {
  for (const std::string& backend : {std::string("native"), std::string("gloo")}) {
    for (const int ranks : {2, 3}) {
      for (const std::string codec : {"none", "int8", "top_k:0.1", "power_sgd:rank=2,start=2"}) {
        const TemporaryDirectory directory;
        run_ranks(ranks, backend, [&](Context& context) {
          const auto whole = train(context, codec, kSteps, {}, {});
          train(context, codec, kInterrupted, {}, directory.path());
          const auto resumed = train(context, codec, kSteps, directory.path(), {});
          EXPECT_TRUE(same_bits(whole, resumed)) << codec << " on " << ranks << " ranks over " << backend;
        });
      }
    }
  }
}

// Strategies that shard the model, whose ranks keep the codec's error of all shards, and strategies with
// several replicas.
TEST(CodecResume, OtherStrategiesGoOnBitForBit) {
  const std::vector<std::pair<std::string, OptionValues>> strategies = {
      {"zero1", {}},
      {"zero2", {}},
      {"zero3", {{"segment-size", "4KiB"}}},
      {"hsdp", {{"shard-ranks", "1"}}},
      {"random", {}},
      {"tpu", {}},
      {"multi_worker_mirrored", {{"replicas", "2"}}}};
  for (const auto& strategy : strategies) {
    const std::string& name = strategy.first;
    for (const std::string codec : {"int8", "top_k:0.1"}) {
      const TemporaryDirectory directory;
      run_ranks(3, "native", [&](Context& context) {
        const auto train_to = [&](std::int64_t until, const std::filesystem::path& from,
                                  const std::filesystem::path& to) {
          OptionValues values = strategy.second;
          values["codec"] = codec;
          const auto made = all_strategies().make(name, context, values);
          Trainer trainer(*made, [] { return wide_model(); });
          trainer.compile(adamw(), cross_entropy);
          if (!from.empty()) trainer.restore(from);
          trainer.fit(std::make_shared<Digits>(96), {.steps = until, .batch_size = 4});
          if (!to.empty()) trainer.save(to, 1);
          return testing::values_of(trainer);
        };
        const auto whole = train_to(kSteps, {}, {});
        train_to(kInterrupted, {}, directory.path());
        EXPECT_TRUE(same_bits(whole, train_to(kSteps, directory.path(), {}))) << name << " " << codec;
        if (context.rank() != 0) return;
        // The checkpoint contains the codec's state.
        EXPECT_GT(std::filesystem::file_size(find_checkpoint(directory.path()) / "communication.safetensors"),
                  std::uintmax_t{3 * 4 * 10'000})
            << name;
      });
    }
  }
}

// The checkpoint also contains the error of the engine's own codec between hosts.
TEST(CodecResume, TheEnginesCodecGoesOnBitForBit) {
  const auto wide_layers = [](Context& context, std::int64_t until, const std::filesystem::path& from,
                              const std::filesystem::path& to) {
    DdpStrategyOptions options;
    options.check_parameters_every = 100;  // whole buckets, each in one all-reduce, also between hosts
    const auto strategy = all_strategies().make("ddp", context, options);
    return train_with(*strategy, wide_model(/*width=*/4000), until, from, to);
  };
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 1}, {0, 1, 2}}) {
    const TemporaryDirectory directory;
    run_ranks(
        static_cast<int>(hosts.size()), "hierarchical(native, gloo, codec=int8)",
        [&](Context& context) {
          ExtendedBackend& engine = *context.world().extended();
          // Every training begins with an engine without state, as in a new process.
          const auto forget = [&] {
            auto nothing = engine.memory();
            std::erase_if(nothing, [](const auto& entry) { return entry.first != "about"; });
            EXPECT_EQ(engine.restore_memory(nothing), "");
          };
          const auto whole = wide_layers(context, kSteps, {}, {});
          forget();
          wide_layers(context, kInterrupted, {}, directory.path());
          std::set<std::string> saved;
          for (const NamedTensor& t :
               map_tensors(find_checkpoint(directory.path()) / "communication.safetensors"))
            saved.insert(t.name);
          for (int rank = 0; rank < context.world_size(); ++rank)
            EXPECT_TRUE(saved.contains(str("rank", rank, "/engine/0/residual"))) << rank;
          forget();
          const auto resumed = wide_layers(context, kSteps, directory.path(), {});
          EXPECT_TRUE(same_bits(whole, resumed)) << hosts.size() << " hosts";
          auto changed = engine.memory();
          changed["about"] = torch::zeros({3}, at::kByte);
          EXPECT_NE(engine.restore_memory(changed).find("codec int8"), std::string::npos);
          EXPECT_NE(engine.restore_memory({}), "");
        },
        std::chrono::seconds(60), hosts);
  }
}

// The checkpoint contains the codec's state: without that file the same training ends differently.
TEST(CodecResume, TheCheckpointHoldsEveryRanksState) {
  const TemporaryDirectory directory;
  const std::filesystem::path without = directory.path() / "without";
  run_ranks(2, "native", [&](Context& context) {
    const auto whole = train(context, "int8", kSteps, {}, {});
    train(context, "int8", kInterrupted, {}, directory.path());
    if (context.rank() == 0) {
      const auto checkpoint = find_checkpoint(directory.path());
      std::map<std::string, at::Tensor> saved;
      for (const NamedTensor& t : map_tensors(checkpoint / "communication.safetensors"))
        saved[t.name] = t.tensor;
      for (const std::string rank : {"rank0", "rank1"}) {
        for (const std::string name : {"/order", "/hook", "/hook/residual/0", "/hook/residual/3"})
          EXPECT_TRUE(saved.contains(rank + name)) << rank << name;
      }
      EXPECT_FALSE(at::equal(saved["rank0/hook/residual/0"], saved["rank1/hook/residual/0"]));
    }
    // A checkpoint of the same step from a run without a codec.
    train(context, "none", kInterrupted, {}, without);
    const auto anew = train(context, "int8", kSteps, without, {});
    EXPECT_FALSE(same_bits(whole, anew));
  });
}

TEST(CodecResume, ResetsForAnotherWorldSizeOrCodec) {
  const TemporaryDirectory directory;
  run_ranks(3, "native",
            [&](Context& context) { train(context, "int8", kInterrupted, {}, directory.path()); });
  run_ranks(2, "native", [&](Context& context) {
    EXPECT_FALSE(train(context, "int8", kInterrupted + 2, directory.path(), {}).empty());
    const auto strategy = ddp_with(context, "int8");
    const auto said = [&](const std::string& codec, std::vector<CommunicationState> states) {
      return ddp_with(context, codec)->prepare(wide_model().module)->restore_communication(states);
    };
    const CommunicationState own =
        strategy->prepare(wide_model().module)->communication_state();  // before the model's first step
    EXPECT_EQ(said("int8", {own, own}), "");
    EXPECT_NE(said("int8", {own, own, own}).find("is of 3 ranks, this run has 2"), std::string::npos);
    EXPECT_NE(said("int8", {}).find("is reset: its saved state is not there"), std::string::npos);
    const std::string other = said("top_k:0.1", {own, own});
    EXPECT_NE(other.find("communication hook 'codec int8', this model has 'codec top_k:0.1'"),
              std::string::npos)
        << other;
    // Codecs without state lose nothing.
    EXPECT_EQ(said("none", {own, own}), "");
    EXPECT_EQ(said("fp16_compress", {own, own}), "");
  });
}

TEST(GatheredStates, MayDifferInNamesShapesAndDtypes) {
  run_ranks(3, "native", [](Context& context) {
    CommunicationState own;
    if (context.rank() == 1) {
      own["bytes"] = torch::arange(3, at::kByte);
      own["nothing"] = at::empty({0}, at::kFloat);
      own["numbers"] = torch::arange(6, at::kLong).view({2, 3}).t();
    }
    if (context.rank() == 2) own["numbers"] = at::full({2}, 0.5, at::kDouble);
    const auto states = gather_states(own, context.world());
    EXPECT_TRUE(gather_states({}, context.world()).empty());
    ASSERT_EQ(states.size(), context.rank() == 0 ? 3U : 0U);
    if (states.empty()) return;
    EXPECT_TRUE(states[0].empty());
    EXPECT_TRUE(at::equal(states[1].at("bytes"), torch::arange(3, at::kByte)));
    EXPECT_EQ(states[1].at("nothing").numel(), 0);
    EXPECT_TRUE(at::equal(states[1].at("numbers"), torch::arange(6, at::kLong).view({2, 3}).t()));
    EXPECT_TRUE(at::equal(states[2].at("numbers"), at::full({2}, 0.5, at::kDouble)));
  });
}

}  // namespace
}  // namespace rondo::codec_resume_test
