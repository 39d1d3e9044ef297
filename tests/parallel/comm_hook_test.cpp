#include "rondo/parallel/hooks/comm_hook.h"

#include <torch/optim/sgd.h>

#include <optional>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/join.h"
#include "rondo/parallel/hooks/codec_hook.h"
#include "rondo/parallel/hooks/default_hooks.h"
#include "rondo/parallel/hooks/power_sgd_hook.h"
#include "rondo/parallel/hooks/registry.h"
#include "tests/parallel/small_models.h"

namespace rondo::comm_hook_test {
namespace {

using namespace testing;

// A regression of a random function in float32, which codecs require. The first layer fills a bucket of
// several KiB, so that all kinds of exchange occur.
TwoLayers float_model() {
  TwoLayers model(1, 200);
  model->to(at::kFloat);
  return model;
}

Batch float_batch(std::int64_t samples, std::uint64_t step) {
  const at::Tensor input = random_tensor({samples, 6}, 1000 + step, at::kFloat);
  return {input, at::stack({input.sum(1).sin(), input.select(1, 0),
                            (input.select(1, 1) * input.select(1, 2)).tanh(), input.mean(1)},
                           1)};
}

DdpOptions small_buckets() {
  DdpOptions options;
  options.bucket_bytes = KiB(2);
  return options;
}

// Trains and returns the mean loss of the last ten steps over all ranks. Checks that ranks stay equal.
double final_loss(const Group& group, const std::optional<CommHook>& hook, int steps) {
  TwoLayers model = float_model();
  DistributedDataParallel ddp(*model, group, small_buckets());
  if (hook) ddp.register_comm_hook(*hook);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  double sum = 0;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = my_rows(float_batch(16 * group.size(), static_cast<std::uint64_t>(step)), group);
    optimizer.zero_grad();
    at::Tensor loss = mean_loss(ddp.forward(model, batch.input), batch);
    loss.backward();
    optimizer.step();
    if (step >= steps - 10) sum += loss.item<double>() / 10;
  }
  for (const at::Tensor& parameter : model->parameters()) {
    for (const at::Tensor& other : all_gather(parameter, group)) EXPECT_TRUE(at::equal(other, parameter));
  }
  at::Tensor mean = at::tensor(sum, at::kDouble).view({1});
  all_reduce(mean, group, ReduceOp::AVG);
  return mean.item<double>();
}

TEST(CommHook, TrainingConvergesWithEveryCodec) {
  constexpr int steps = 200;
  const std::vector<std::string> all = {
      "allreduce", "fp16_compress", "bf16_compress", "float16",
      "bfloat16",  "int8",          "top_k:0.1",     "power_sgd:rank=2,start=10"};
  const auto compare = [&](const Group& group, const std::vector<std::string>& names) {
    const double plain = final_loss(group, {}, steps);
    const double start = final_loss(group, {}, 10);
    ASSERT_LT(plain, start / 4);
    for (const std::string& name : names) {
      const double loss = final_loss(group, make_comm_hook(name, group), steps);
      EXPECT_LT(std::abs(loss - plain), 0.02 * start) << name;
    }
  };
  run_ranks("native", 3, [&](const Group& group) { compare(group, all); });
  run_ranks(engines().back(), 2, [&](const Group& group) { compare(group, {"int8", "top_k:0.1"}); });
}

// Compares one gradient, averaged by each hook, with one process.
TEST(CommHook, HooksAverage) {
  for (const std::string& engine : engines()) {
    run_ranks(engine, 3, [&](const Group& group) {
      const Batch batch = float_batch(12, 0);
      TwoLayers alone = float_model();
      mean_loss(alone->forward(batch.input), batch).backward();
      const struct {
        CommHook hook;
        double tolerance;
      } hooks[] = {{allreduce_hook(group), 1e-6},
                   {fp16_compress_hook(group), 1e-2},
                   {bf16_compress_hook(group), 5e-2},
                   {bf16_compress_wrapper(allreduce_hook(group)), 5e-2},
                   {fp16_compress_wrapper(power_sgd_hook(group)), 1e-2},
                   {codec_hook(group, "int8"), 3e-2},
                   {power_sgd_hook(group), 1e-6}};
      for (const auto& [hook, tolerance] : hooks) {
        TwoLayers model = float_model();
        DistributedDataParallel ddp(*model, group, small_buckets());
        ddp.register_comm_hook(hook);
        const Batch mine = my_rows(batch, group);
        mean_loss(ddp.forward(model, mine.input), mine).backward();
        EXPECT_LT(gradient_difference(*model, *alone), tolerance) << engine << " " << hook.name;

        // Samples have the same weights as without a hook: rank 0 has 2 rows, the others 5.
        model->zero_grad();
        const std::int64_t rows_here = group.rank() == 0 ? 2 : 5;
        const Batch uneven = rows(batch, group.rank() == 0 ? 0 : 5 * group.rank() - 3, rows_here);
        ddp.set_local_samples(rows_here);
        mean_loss(ddp.forward(model, uneven.input), uneven).backward();
        EXPECT_LT(gradient_difference(*model, *alone), tolerance) << engine << " " << hook.name;
      }
      // Without communication ranks keep their own gradients.
      TwoLayers model = float_model();
      DistributedDataParallel ddp(*model, group);
      ddp.register_comm_hook(noop_hook());
      const Batch mine = my_rows(batch, group);
      mean_loss(ddp.forward(model, mine.input), mine).backward();
      TwoLayers own = float_model();
      mean_loss(own->forward(mine.input), mine).backward();
      EXPECT_LT(gradient_difference(*model, *own), 1e-7);
    });
  }
}

TEST(CommHook, ABucketShowsWhatIsInIt) {
  run_ranks("native", 2, [](const Group& group) {
    TwoLayers model = float_model();
    DistributedDataParallel ddp(*model, group, small_buckets());
    std::vector<std::size_t> indices;
    std::vector<bool> last;
    std::size_t parameters = 0;
    CommHook hook{"looks", [&](GradBucket& bucket) -> BucketFuture {
                    indices.push_back(bucket.index());
                    last.push_back(bucket.is_last());
                    parameters += bucket.parameters().size();
                    const std::vector<at::Tensor> gradients = bucket.gradients();
                    std::int64_t elements = 0;
                    for (std::size_t i = 0; i < gradients.size(); ++i) {
                      EXPECT_EQ(gradients[i].sizes(), bucket.parameters()[i].sizes());
                      elements += gradients[i].numel();
                    }
                    EXPECT_EQ(elements, bucket.buffer().numel());
                    // A hook may return another tensor.
                    return at::full_like(bucket.buffer(), 3.0);
                  }};
    ddp.register_comm_hook(hook);
    const Batch batch = float_batch(4, 0);
    {
      const auto guard = ddp.no_sync();
      mean_loss(ddp.forward(model, batch.input), batch).backward();
    }
    EXPECT_TRUE(indices.empty());
    mean_loss(ddp.forward(model, batch.input), batch).backward();
    ASSERT_GT(indices.size(), 1U);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      EXPECT_EQ(indices[i], i);
      EXPECT_EQ(last[i], i + 1 == indices.size());
    }
    EXPECT_EQ(parameters, 4U);
    for (const at::Tensor& parameter : model->parameters())
      EXPECT_TRUE((parameter.grad() == 3).all().item<bool>());
  });
}

// Rounds of several buckets overlap. All ranks must send them in one order, whenever messages arrive. Each
// message holds numbers that identify its bucket and round, so a mix-up gives a wrong sum.
TEST(CommHook, RoundsOfDifferentBucketsNeverMeet) {
  for (const std::string& engine : engines()) {
    run_ranks(engine, 3, [](const Group& group) {
      torch::nn::Sequential model;
      for (int i = 0; i < 12; ++i) model->push_back(torch::nn::Linear(8, 8));
      model->to(at::kDouble);
      DdpOptions options;
      options.bucket_bytes = Bytes{1};
      options.find_unused_parameters = true;
      DistributedDataParallel ddp(*model, group, options);
      CommHook hook{
          "rounds", [&](GradBucket& bucket) {
            const auto round = [&group, index = bucket.index()](std::int64_t number) {
              const double value = static_cast<double>(100 * (index + 1) + number);
              return start_sum(group, at::full({64 + number}, value, at::kDouble));
            };
            const auto check = [index = bucket.index()](const at::Tensor& sum, std::int64_t number) {
              EXPECT_EQ(sum.numel(), 64 + number);
              EXPECT_TRUE((sum == 3.0 * static_cast<double>(100 * (index + 1) + number)).all().item<bool>());
            };
            BucketFuture future = round(0);
            // Every third bucket has fewer rounds.
            const std::int64_t rounds = bucket.index() % 3 == 0 ? 1 : 4;
            for (std::int64_t number = 1; number <= rounds; ++number) {
              future = std::move(future).then_send([=](const at::Tensor& sum) {
                check(sum, number - 1);
                return round(number);
              });
            }
            return std::move(future).then([=, buffer = bucket.buffer()](const at::Tensor& sum) {
              check(sum, rounds);
              return buffer;
            });
          }};
      ddp.register_comm_hook(hook);
      for (int step = 0; step < 6; ++step) {
        const at::Tensor input = random_tensor({4, 8}, static_cast<std::uint64_t>(step));
        ddp.forward(model, input).sum().backward();
      }
    });
  }
}

TEST(CommHook, UnusedParametersAndGradientAccumulation) {
  struct Branches : torch::nn::Module {
    Branches() : left(6, 4), right(6, 4), never(6, 4) {
      register_module("left", left);
      register_module("right", right);
      register_module("never", never);
      to(at::kFloat);
      fill_parameters(*this, 3);
    }
    at::Tensor forward(const at::Tensor& input, bool use_right) {
      return use_right ? right(input) : left(input);
    }
    torch::nn::Linear left, right, never;
  };
  for (const std::string& engine : engines()) {
    run_ranks(engine, 2, [&](const Group& group) {
      for (const char* name : {"allreduce", "int8", "power_sgd:start=2,min_compression_rate=0.5"}) {
        const auto model = std::make_shared<Branches>();
        DdpOptions options;
        options.find_unused_parameters = true;
        options.bucket_bytes = Bytes{64};
        DistributedDataParallel ddp(*model, group, options);
        ddp.register_comm_hook(make_comm_hook(name, group));
        for (std::uint64_t step = 0; step < 6; ++step) {
          model->zero_grad();
          const Batch batch = float_batch(4, step + static_cast<std::uint64_t>(group.rank()));
          {
            const auto guard = ddp.no_sync();
            ddp.forward(model, batch.input, group.rank() == 0).sum().backward();
          }
          ddp.forward(model, batch.input, group.rank() == 0).sum().backward();
          EXPECT_FALSE(model->never->weight.grad().defined()) << engine << " " << name;
          // Two passes on one rank, averaged over two ranks, give that rank's sum over the inputs.
          at::Tensor expected = batch.input.sum(0);
          broadcast(expected, group, 0);
          const at::Tensor given = model->right->weight.grad().select(0, 1);
          EXPECT_LT(largest_difference(given, expected), 0.2) << engine << " " << name << " " << step;
          for (const at::Tensor& parameter : {model->left->weight, model->right->weight}) {
            const at::Tensor gradient = parameter.grad();
            EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << engine << " " << name;
            for (const at::Tensor& other : all_gather(gradient, group))
              EXPECT_TRUE(at::equal(other, gradient));
          }
        }
      }
    });
  }
}

TEST(CommHook, RanksRunOutOfDataAtDifferentTimes) {
  for (const std::string& engine : engines()) {
    run_ranks(engine, 3, [](const Group& group) {
      for (const char* name : {"allreduce", "int8", "top_k:0.1", "power_sgd:start=2"}) {
        TwoLayers model = float_model();
        DistributedDataParallel ddp(*model, group, small_buckets());
        ddp.register_comm_hook(make_comm_hook(name, group));
        torch::optim::SGD optimizer(model->parameters(), 0.01);
        with_join({&ddp}, [&] {
          for (int step = 0; step < 3 + 2 * group.rank(); ++step) {
            const Batch batch = float_batch(4, static_cast<std::uint64_t>(step));
            optimizer.zero_grad();
            mean_loss(ddp.forward(model, batch.input), batch).backward();
            optimizer.step();
          }
        });
        for (const at::Tensor& parameter : model->parameters()) {
          EXPECT_TRUE(at::isfinite(parameter).all().item<bool>());
          for (const at::Tensor& other : all_gather(parameter, group))
            EXPECT_TRUE(at::equal(other, parameter));
        }
      }
    });
  }
}

// Simulates a loss scale that was too high: the step shows it, and later steps are unaffected.
TEST(CommHook, AnInfinityIsSeenAndForgotten) {
  run_ranks("native", 3, [](const Group& group) {
    for (const char* name : {"float16", "int8", "top_k:0.1", "power_sgd:start=2"}) {
      TwoLayers model = float_model();
      DistributedDataParallel ddp(*model, group, small_buckets());
      ddp.register_comm_hook(make_comm_hook(name, group));
      const Batch batch = my_rows(float_batch(12, 0), group);
      for (int step = 0; step < 6; ++step) {
        model->zero_grad();
        const float scale = step == 3 && group.rank() == 1 ? std::numeric_limits<float>::infinity() : 1.0F;
        (mean_loss(ddp.forward(model, batch.input), batch) * scale).backward();
        bool finite = true;
        for (const at::Tensor& parameter : model->parameters()) {
          finite = finite && at::isfinite(parameter.grad()).all().item<bool>();
        }
        EXPECT_EQ(finite, step != 3) << name << " " << step;
      }
    }
  });
}

TEST(CommHook, ResidualsFollowRebuiltBuckets) {
  run_ranks("native", 2, [](const Group& group) {
    TwoLayers model = float_model();
    // Parameters are registered in the order opposite to their use, so the second pass has another bucket
    // layout.
    ModelTensors tensors = tensors_of(*model);
    std::reverse(tensors.parameters.begin(), tensors.parameters.end());
    DistributedDataParallel ddp(tensors, group, small_buckets());
    ddp.register_comm_hook(codec_hook(group, "top_k:0.2"));
    const Batch batch = my_rows(float_batch(8, 0), group);
    at::Tensor received = at::zeros_like(model->second->weight);
    at::Tensor once;
    constexpr int steps = 40;
    for (int step = 0; step < steps; ++step) {
      model->zero_grad();
      mean_loss(ddp.forward(model, batch.input), batch).backward();
      received += model->second->weight.grad();
    }
    TwoLayers alone = float_model();
    const Batch joint = float_batch(8, 0);
    mean_loss(alone->forward(joint.input), joint).backward();
    const at::Tensor given = alone->second->weight.grad() * steps;
    // The missing part is the residual, at most a few steps' worth. Losing the first step's residual would
    // only show in small values, so the mean is compared.
    const double missing =
        ((received - given).abs().mean() / alone->second->weight.grad().abs().mean()).item<double>();
    EXPECT_LT(missing, 5);
  });
}

TEST(CommHook, WrongUseIsNamed) {
  run_ranks("native", 2, [](const Group& group) {
    TwoLayers model = float_model();
    const Batch batch = float_batch(4, 0);
    {
      DistributedDataParallel ddp(*model, group);
      ddp.register_comm_hook(allreduce_hook(group));
      expect_facts(message_of<UsageError>([&] { ddp.register_comm_hook(noop_hook()); }),
                   {"register_comm_hook", "one"});
    }
    {
      DistributedDataParallel ddp(*model, group);
      mean_loss(ddp.forward(model, batch.input), batch).backward();
      expect_facts(message_of<UsageError>([&] { ddp.register_comm_hook(noop_hook()); }),
                   {"register_comm_hook", "first", "backward"});
    }
    {
      DistributedDataParallel ddp(*model, group);
      const std::string message = message_of(
          [&] { ddp.register_comm_hook(make_comm_hook(group.rank() == 0 ? "int8" : "float16", group)); });
      EXPECT_NE(message.find("codec int8"), std::string::npos) << message;
      EXPECT_NE(message.find("codec float16"), std::string::npos) << message;
    }
    {
      DistributedDataParallel ddp(*model, group);
      ddp.register_comm_hook({"short", [](GradBucket&) -> BucketFuture { return at::zeros({1}); }});
      const std::string message =
          message_of([&] { mean_loss(ddp.forward(model, batch.input), batch).backward(); });
      EXPECT_NE(message.find("'short' gave 1 elements"), std::string::npos) << message;
    }
    EXPECT_THROW(DistributedDataParallel(*model, group).register_comm_hook({"empty", nullptr}), UsageError);

    const std::string unknown = message_of([&] { make_comm_hook("int7", group); });
    for (const std::string& name : comm_hook_names())
      EXPECT_NE(unknown.find(name), std::string::npos) << unknown;
    for (const char* name :
         {"none", "power_sgd:rank=0", "power_sgd:rank=x", "power_sgd:start=1", "power_sgd:q=1",
          "power_sgd:min_compression_rate=0", "noop:1", "int8:2", "top_k:2"}) {
      EXPECT_THROW(make_comm_hook(name, group), UsageError) << name;
    }
  });
}

TEST(Orthogonalize, ColumnsAreOrthonormalAndZerosStay) {
  for (const std::int64_t columns : {1, 2, 4}) {
    at::Tensor matrix = random_tensor({9, columns}, 4);
    orthogonalize(matrix, 0);
    EXPECT_LT(largest_difference(matrix.t().mm(matrix), at::eye(columns, at::kDouble)), 1e-12);
  }
  at::Tensor zeros = at::zeros({5, 2}, at::kDouble);
  orthogonalize(zeros, 0);
  EXPECT_TRUE((zeros == 0).all().item<bool>());
}

TEST(PowerSgd, LowRankGradientsArriveExactlyAndStatisticsCount) {
  run_ranks("native", 2, [](const Group& group) {
    PowerSgdOptions options;
    options.start_iter = 2;
    const auto state = std::make_shared<PowerSgdState>(group, options);
    torch::nn::Linear model(60, 40);
    DistributedDataParallel ddp(*model, group);
    ddp.register_comm_hook(power_sgd_hook(state));
    EXPECT_EQ(state->compression_stats().rate, 0);
    for (int step = 0; step < 5; ++step) {
      model->zero_grad();
      // One sample, the same direction on all ranks: the weight's gradient has rank 1.
      const at::Tensor input = random_tensor({1, 60}, static_cast<std::uint64_t>(step), at::kFloat);
      const at::Tensor factors = random_tensor({40}, 7, at::kFloat);
      ((ddp.forward(model, input) * factors).sum() * static_cast<double>(group.rank() + 1)).backward();
      const at::Tensor expected = at::outer(factors, input[0]) * 1.5;
      EXPECT_LT(largest_difference(model->weight.grad(), expected), 1e-4) << step;
      EXPECT_LT(largest_difference(model->bias.grad(), factors * 1.5), 1e-5) << step;
    }
    const auto stats = state->compression_stats();
    EXPECT_EQ(stats.elements_before, 3 * (60 * 40 + 40));
    EXPECT_EQ(stats.elements_after, 3 * (60 + 40 + 40));
    EXPECT_NEAR(stats.rate, 2440.0 / 140, 1e-9);
  });
}

// Programs check codec names this way before there is a group.
TEST(CommHookNames, AreCheckedWithoutAGroup) {
  for (const std::string& name : comm_hook_names()) EXPECT_TRUE(make_comm_hook(name, Group()).run) << name;
  expect_facts(message_of<UsageError>([] { make_comm_hook("int7", Group()); }), {"int7", "int8"});
}

}  // namespace
}  // namespace rondo::comm_hook_test
