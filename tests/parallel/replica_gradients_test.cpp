#include "rondo/parallel/replicas/replica_gradients.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <thread>

#include "rondo/backend/engine/nccl_module.h"
#include "rondo/base/error.h"
#include "rondo/parallel/replicas/replica_threads.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::replica_gradients_test {
namespace {

// Threads, barrier and errors.

TEST(ReplicaThreads, EachReplicaHasAThreadThatStays) {
  ReplicaThreads threads(3);
  std::vector<std::thread::id> first(3), second(3);
  threads.run([&](int replica) { first[static_cast<std::size_t>(replica)] = std::this_thread::get_id(); });
  threads.run([&](int replica) {
    EXPECT_EQ(threads.current(), replica);
    second[static_cast<std::size_t>(replica)] = std::this_thread::get_id();
  });
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_NE(first[1], first[2]);
  EXPECT_EQ(threads.current(), 0);
}

TEST(ReplicaThreads, MeetingsOrderWhatReplicasWrite) {
  ReplicaThreads threads(4);
  std::vector<int> values(4, 0);
  int wrong = 0;
  for (int step = 0; step < 300; ++step) {
    threads.run([&](int replica) {
      values[static_cast<std::size_t>(replica)] = step + replica;
      threads.meet();
      int sum = 0;
      for (const int value : values) sum += value;
      if (sum != 4 * step + 6) ++wrong;
      threads.meet();
    });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ReplicaThreads, ExceptionNamesItsReplicaAndReleasesOthers) {
  ReplicaThreads threads(3);
  for (int attempt = 0; attempt < 20; ++attempt) {
    try {
      threads.run([&](int replica) {
        if (replica == 2) throw UsageError("a width of 7 cannot be");
        threads.meet();
      });
      FAIL() << "nothing was thrown";
    } catch (const UsageError& error) {
      testing::expect_facts(error.what(), {"replica 2 of 3", "a width of 7"});
    }
  }
  std::atomic<int> ran = 0;
  threads.run([&](int) {
    threads.meet();
    ++ran;
  });
  EXPECT_EQ(ran, 3);
  try {
    threads.run([&](int replica) {
      if (replica == 1) torch::ones({2}).view({3});
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    testing::expect_facts(error.what(), {"replica 1 of 3", "[3]"});
  }
}

TEST(ReplicaThreads, RefusesWhatCannotBe) {
  EXPECT_THROW(ReplicaThreads(0), UsageError);
  ReplicaThreads threads(2);
  EXPECT_THROW(threads.run([&](int) { threads.run([](int) {}); }), UsageError);
}

// Gradients.

struct Case {
  int replicas;
  CrossDeviceOps ops;
  int num_packs;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.replicas << " replicas, ops " << static_cast<int>(c.ops) << ", " << c.num_packs << " packs";
}

// Returns engines that run the NCCL path over an engine for CPU tensors.
std::shared_ptr<ReplicaEngines> engines_for(CrossDeviceOps ops, ReplicaThreads& threads) {
  if (ops != CrossDeviceOps::nccl) return nullptr;
  return std::make_shared<ReplicaEngines>(threads, "native", std::chrono::minutes(1));
}

class Combining : public ::testing::TestWithParam<Case> {
 protected:
  static std::shared_ptr<torch::nn::SequentialImpl> model(at::ScalarType dtype) {
    auto made =
        std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(37, 19), torch::nn::Linear(19, 3));
    made->to(dtype);
    return made;
  }
};

TEST_P(Combining, GivesTheWeightedMeanToAll) {
  const Case c = GetParam();
  ReplicaThreads threads(c.replicas);
  for (const at::ScalarType dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    for (const bool equal : {true, false}) {
      std::vector<std::shared_ptr<torch::nn::SequentialImpl>> models;
      std::vector<torch::nn::Module*> modules;
      for (int replica = 0; replica < c.replicas; ++replica) {
        models.push_back(model(dtype));
        modules.push_back(models.back().get());
      }
      ReplicaGradients gradients(
          threads, modules, {.ops = c.ops, .num_packs = c.num_packs, .engines = engines_for(c.ops, threads)});
      const auto parameters = models[0]->parameters().size();
      std::vector<at::Tensor> expected(parameters);
      double total = 0;
      std::vector<const void*> places;
      for (int replica = 0; replica < c.replicas; ++replica) {
        const double weight = equal ? 1 : replica == 1 ? 0 : replica + 1;
        total += weight;
        for (std::size_t i = 0; i < parameters; ++i) {
          at::Tensor parameter = models[static_cast<std::size_t>(replica)]->parameters()[i];
          parameter.mutable_grad() = torch::randn_like(parameter);
          places.push_back(parameter.grad().data_ptr());
          const at::Tensor share = parameter.grad().to(torch::kDouble) * weight;
          expected[i] = expected[i].defined() ? expected[i] + share : share;
        }
      }
      threads.run([&](int replica) { gradients.combine(equal ? 1 : replica == 1 ? 0 : replica + 1); });
      const double tolerance = dtype == torch::kBFloat16 ? 3e-2 : 1e-6;
      for (int replica = 0; replica < c.replicas; ++replica) {
        for (std::size_t i = 0; i < parameters; ++i) {
          const at::Tensor gradient = models[static_cast<std::size_t>(replica)]->parameters()[i].grad();
          EXPECT_TRUE(
              torch::allclose(gradient.to(torch::kDouble), expected[i] / total, tolerance, tolerance));
          EXPECT_TRUE(torch::equal(gradient, models[0]->parameters()[i].grad())) << "replicas differ";
          EXPECT_EQ(gradient.data_ptr(), places[static_cast<std::size_t>(replica) * parameters + i])
              << "it was copied";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Combining,
    ::testing::Values(Case{1, CrossDeviceOps::all_reduce, 1}, Case{2, CrossDeviceOps::all_reduce, 1},
                      Case{3, CrossDeviceOps::all_reduce, 2}, Case{4, CrossDeviceOps::all_reduce, 0},
                      Case{2, CrossDeviceOps::hierarchical_copy, 1},
                      Case{3, CrossDeviceOps::hierarchical_copy, 1},
                      Case{5, CrossDeviceOps::hierarchical_copy, 1}, Case{2, CrossDeviceOps::one_device, 1},
                      Case{4, CrossDeviceOps::one_device, 0}, Case{2, CrossDeviceOps::nccl, 1},
                      Case{3, CrossDeviceOps::nccl, 2}, Case{4, CrossDeviceOps::nccl, 0}));

TEST(ReplicaGradients, EnginesReduceWhatIsDense) {
  ReplicaThreads threads(2);
  struct Net : torch::nn::Module {
    Net() {
      rows = register_module("rows", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true)));
      linear = register_module("linear", torch::nn::Linear(2, 3));
    }
    torch::nn::Embedding rows{nullptr};
    torch::nn::Linear linear{nullptr};
  };
  Net first, second;
  ReplicaGradients gradients(
      threads, {&first, &second},
      {.ops = CrossDeviceOps::nccl, .engines = engines_for(CrossDeviceOps::nccl, threads)});
  first.rows->forward(torch::tensor({0, 2})).sum().backward();
  second.rows->forward(torch::tensor({2, 5})).sum().backward();
  // Only one replica has this gradient, and its strides are not contiguous.
  first.linear->weight.mutable_grad() = torch::arange(6, torch::kFloat).view({2, 3}).t();
  // Gradients of samples that do not count may have any value.
  first.linear->bias.mutable_grad() = torch::full({3}, 2.0);
  second.linear->bias.mutable_grad() = torch::full({3}, std::nan(""));
  threads.run([&](int replica) { gradients.combine(replica == 0 ? 2 : 0); });
  for (Net* each : {&first, &second}) {
    EXPECT_TRUE(each->rows->weight.grad().is_sparse());
    EXPECT_TRUE(torch::equal(each->rows->weight.grad().to_dense()[0], torch::ones({2})));
    EXPECT_TRUE(torch::equal(each->linear->weight.grad(), torch::arange(6, torch::kFloat).view({2, 3}).t()));
    EXPECT_TRUE(torch::equal(each->linear->bias.grad(), torch::full({3}, 2.0)));
  }
}

TEST(ReplicaEngines, NcclTakesReplicasOnCardsOnly) {
  testing::expect_facts(testing::message_of<UsageError>([] {
                          require_cuda_devices({c10::kMeta, c10::kCPU}, "--cross-device-ops nccl");
                        }),
                        {"--cross-device-ops nccl", "replica 1", "CPU", "--device cuda"});
  EXPECT_NO_THROW(require_cuda_devices({c10::kMeta, c10::kMeta}, "--cross-device-ops nccl"));
  testing::run_ranks(2, "native", [](Context& context) {
    testing::expect_facts(
        testing::message_of<UsageError>([&] { require_nccl(context, "mwm-implementation nccl"); }),
        {"mwm-implementation nccl", "native", "--backend nccl"});
  });
  ReplicaThreads threads(2);
  if (!have_nccl()) {
    testing::expect_facts(
        testing::message_of<UsageError>([&] { ReplicaEngines(threads, "nccl", std::chrono::minutes(1)); }),
        {"no NCCL", "libtorch with CUDA"});
  }
}

TEST(ReplicaGradients, PartlyUnusedParameterCountsAsZero) {
  ReplicaThreads threads(2);
  torch::nn::Linear first(4, 2), second(4, 2);
  ReplicaGradients gradients(threads, {first.get(), second.get()}, {});
  first->weight.mutable_grad() = torch::full({2, 4}, 3.0);
  threads.run([&](int) { gradients.combine(1); });
  EXPECT_TRUE(torch::equal(second->weight.grad(), torch::full({2, 4}, 1.5)));
  EXPECT_FALSE(first->bias.grad().defined());
  EXPECT_FALSE(second->bias.grad().defined());
}

TEST(ReplicaGradients, IgnoresStridesOfOtherReplicas) {
  ReplicaThreads threads(2);
  torch::nn::Linear first(4, 2), second(4, 2);
  ReplicaGradients gradients(threads, {first.get(), second.get()}, {});
  const at::Tensor values = torch::randn({2, 4});
  first->weight.mutable_grad() = values.clone();
  second->weight.mutable_grad() = values.t().contiguous().t();
  threads.run([&](int) { gradients.combine(1); });
  EXPECT_TRUE(torch::allclose(second->weight.grad(), values));
}

TEST(ReplicaGradients, SparseRowsOfAllReplicasAreJoined) {
  ReplicaThreads threads(2);
  torch::nn::Embedding first(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  torch::nn::Embedding second(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  ReplicaGradients gradients(threads, {first.get(), second.get()}, {});
  first->forward(torch::tensor({0, 2, 2})).sum().backward();
  second->forward(torch::tensor({2, 5})).sum().backward();
  threads.run([&](int replica) { gradients.combine(replica == 0 ? 3 : 1); });
  at::Tensor expected = torch::zeros({6, 2});
  expected[0] = 0.75;
  expected[2] = 1.5 + 0.25;
  expected[5] = 0.25;
  for (const auto& each : {first, second}) {
    const at::Tensor gradient = each->weight.grad();
    ASSERT_TRUE(gradient.is_sparse());
    EXPECT_EQ(gradient._nnz(), 3);
    EXPECT_TRUE(torch::allclose(gradient.to_dense(), expected));
  }
  EXPECT_NE(first->weight.grad()._values().data_ptr(), second->weight.grad()._values().data_ptr());
}

TEST(ReplicaGradients, RefusesDenseBesideSparseGradient) {
  ReplicaThreads threads(2);
  torch::nn::Embedding first(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  torch::nn::Embedding second(6, 2);
  ReplicaGradients gradients(threads, {first.get(), second.get()}, {});
  first->forward(torch::tensor({0})).sum().backward();
  second->forward(torch::tensor({0})).sum().backward();
  try {
    threads.run([&](int) { gradients.combine(1); });
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    testing::expect_facts(error.what(), {"weight", "sparse", "dense", "replica 0", "replica 1"});
  }
}

TEST(ReplicaGradients, NamesOfOperations) {
  EXPECT_EQ(parse_cross_device_ops("one_device", "--cross-device-ops"), CrossDeviceOps::one_device);
  try {
    parse_cross_device_ops("ring", "--cross-device-ops");
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    testing::expect_facts(error.what(), {"--cross-device-ops ring", "hierarchical_copy", "nccl"});
  }
}

}  // namespace
}  // namespace rondo::replica_gradients_test
