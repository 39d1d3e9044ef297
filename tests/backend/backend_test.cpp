#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine_factories.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"

namespace rondo::backend_test {
namespace {

using testing::run_ranks;

class BackendMatrix : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string backend() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(Context&)>& body) const { run_ranks(size(), backend(), body); }
};

at::Tensor contribution(int rank, at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  std::int64_t n = 1;
  for (const auto s : shape) n *= s;
  return (at::arange(n, at::kLong) % 7 + rank + 1).to(type).view(shape);
}

at::Tensor sum_of_contributions(int size, at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  at::Tensor sum = contribution(0, shape, type);
  for (int r = 1; r < size; ++r) sum += contribution(r, shape, type);
  return sum;
}

TEST_P(BackendMatrix, AllReduceOfEveryType) {
  run([&](Context& context) {
    for (const auto type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte, at::kChar}) {
      at::Tensor tensor = contribution(context.rank(), {3, 50}, type);
      if (backend() == "gloo" && type == at::kBFloat16)
        continue;  // not every release of Gloo supports bfloat16
      all_reduce(tensor, context.world());
      EXPECT_TRUE(at::equal(tensor, sum_of_contributions(size(), {3, 50}, type))) << type;
    }
  });
}

TEST_P(BackendMatrix, AllReduceOperations) {
  run([&](Context& context) {
    const auto reduced = [&](ReduceOp op, at::Tensor tensor) {
      all_reduce(tensor, context.world(), op);
      return tensor;
    };
    const int n = size();
    EXPECT_EQ(reduced(ReduceOp::MAX, at::full({4}, context.rank())).sum().item<int>(), 4 * (n - 1));
    EXPECT_EQ(reduced(ReduceOp::MIN, at::full({4}, context.rank() + 1)).sum().item<int>(), 4);
    EXPECT_EQ(reduced(ReduceOp::PRODUCT, at::full({1}, 2, at::kLong)).item<int>(), 1 << n);
    EXPECT_EQ(reduced(ReduceOp::BOR, at::full({1}, 1 << context.rank(), at::kLong)).item<int>(),
              (1 << n) - 1);
    EXPECT_EQ(reduced(ReduceOp::BAND, at::full({1}, 3 | (4 << context.rank()), at::kLong)).item<int>() & 3,
              3);
    if (backend() == "native") {
      EXPECT_FLOAT_EQ(reduced(ReduceOp::AVG, at::full({1}, context.rank() + 1.0F)).item<float>(),
                      (n + 1) / 2.0F);
    }
  });
}

TEST_P(BackendMatrix, LargeAndStridedTensors) {
  run([&](Context& context) {
    at::Tensor large = contribution(context.rank(), {1000, 301});
    all_reduce(large, context.world());
    EXPECT_TRUE(at::equal(large, sum_of_contributions(size(), {1000, 301})));
    if (backend() != "native") return;  // Gloo needs contiguous tensors
    at::Tensor strided = contribution(context.rank(), {20, 30}).t();
    all_reduce(strided, context.world());
    EXPECT_TRUE(at::equal(strided, sum_of_contributions(size(), {20, 30}).t()));
  });
}

TEST_P(BackendMatrix, RootedOperations) {
  run([&](Context& context) {
    const Group& world = context.world();
    const int root = size() - 1;
    at::Tensor tensor = contribution(context.rank(), {33});
    broadcast(tensor, world, root);
    EXPECT_TRUE(at::equal(tensor, contribution(root, {33})));

    tensor = contribution(context.rank(), {33});
    reduce(tensor, world, root);
    if (context.rank() == root) {
      EXPECT_TRUE(at::equal(tensor, sum_of_contributions(size(), {33})));
    }

    const auto gathered = gather(contribution(context.rank(), {5}), world, root);
    EXPECT_EQ(gathered.size(), context.rank() == root ? static_cast<std::size_t>(size()) : 0U);
    for (std::size_t r = 0; r < gathered.size(); ++r) {
      EXPECT_TRUE(at::equal(gathered[r], contribution(static_cast<int>(r), {5})));
    }

    std::vector<at::Tensor> pieces;
    for (int r = 0; r < size(); ++r) pieces.push_back(contribution(r, {2, 3}));
    at::Tensor piece = at::zeros({2, 3});
    scatter(piece, pieces, world, root);
    EXPECT_TRUE(at::equal(piece, contribution(context.rank(), {2, 3})));
  });
}

TEST_P(BackendMatrix, GatherScatterAndExchange) {
  run([&](Context& context) {
    const Group& world = context.world();
    const auto all = all_gather(contribution(context.rank(), {4, 5}), world);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
    for (int r = 0; r < size(); ++r)
      EXPECT_TRUE(at::equal(all[static_cast<std::size_t>(r)], contribution(r, {4, 5})));

    const at::Tensor part = reduce_scatter(contribution(context.rank(), {size() * 3, 2}), world);
    EXPECT_TRUE(
        at::equal(part, sum_of_contributions(size(), {size() * 3, 2}).narrow(0, context.rank() * 3, 3)));

    // Rank s sends s + r + 1 values, all equal to 10 s + r, to rank r.
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    for (int r = 0; r < size(); ++r) {
      inputs.push_back(at::full({context.rank() + r + 1},
                                10.0F * static_cast<float>(context.rank()) + static_cast<float>(r)));
      outputs.push_back(at::zeros({context.rank() + r + 1}));
    }
    all_to_all(outputs, inputs, world);
    for (int r = 0; r < size(); ++r) {
      const at::Tensor& output = outputs[static_cast<std::size_t>(r)];
      EXPECT_TRUE(at::equal(
          output, at::full_like(output, 10.0F * static_cast<float>(r) + static_cast<float>(context.rank()))));
    }
    barrier(world);
  });
}

TEST_P(BackendMatrix, SendAndReceive) {
  if (size() == 1) return;
  run([&](Context& context) {
    const int next = (context.rank() + 1) % size();
    const int previous = (context.rank() + size() - 1) % size();
    // All ranks send first: a send of any size must not wait for its receiver to be posted.
    at::Tensor outgoing = contribution(context.rank(), {size() == 2 ? 100 : 50});
    at::Tensor incoming = at::zeros_like(outgoing);
    std::vector<at::Tensor> sent{outgoing};
    std::vector<at::Tensor> received{incoming};
    auto sending = context.world().backend()->send(sent, next, 3);
    auto receiving = context.world().backend()->recv(received, previous, 3);
    receiving->wait();
    sending->wait();
    EXPECT_TRUE(at::equal(incoming, contribution(previous, {outgoing.numel()})));
  });
}

TEST_P(BackendMatrix, Objects) {
  run([&](Context& context) {
    const nlohmann::json mine{{"rank", context.rank()},
                              {"text", std::string(static_cast<std::size_t>(context.rank()) * 100, 'x')}};
    const auto all = all_gather_object(mine, context.world());
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
    for (int r = 0; r < size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)]["rank"], r);
    EXPECT_EQ(broadcast_object(mine, context.world(), size() - 1)["rank"], size() - 1);
    EXPECT_EQ(gather_object(mine, context.world(), 0).size(),
              context.rank() == 0 ? static_cast<std::size_t>(size()) : 0U);
  });
}

TEST_P(BackendMatrix, SubGroups) {
  run([&](Context& context) {
    std::vector<int> evens;
    for (int r = size() - 1; r >= 0; --r) {
      if (r % 2 == 0) evens.push_back(r);  // descending: the group keeps the given order
    }
    const Group group = context.new_group(evens);
    EXPECT_EQ(group.member(), context.rank() % 2 == 0);
    if (!group.member()) {
      EXPECT_THROW(group.backend(), UsageError);
      return;
    }
    EXPECT_EQ(group.ranks(), evens);
    EXPECT_EQ(evens[static_cast<std::size_t>(group.rank())], context.rank());
    at::Tensor tensor = at::full({3}, context.rank());
    all_reduce(tensor, group);
    EXPECT_EQ(tensor[0].item<int>(), std::accumulate(evens.begin(), evens.end(), 0));
  });
}

std::vector<const char*> engines() {
  return have_gloo() ? std::vector<const char*>{"native", "gloo"} : std::vector<const char*>{"native"};
}

INSTANTIATE_TEST_SUITE_P(EnginesAndSizes, BackendMatrix,
                         ::testing::Combine(::testing::ValuesIn(engines()), ::testing::Values(1, 2, 4)));

TEST(Native, AsynchronousWorksCompleteInAnyOrderOfWaiting) {
  run_ranks(2, "native", [](Context& context) {
    std::vector<std::vector<at::Tensor>> tensors;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int k = 1; k <= 20; ++k) {
      tensors.push_back({at::full({k * 1000}, context.rank() + k)});
      works.push_back(context.world().backend()->allreduce(tensors.back()));
    }
    for (std::size_t k = 20; k-- > 0;) {
      EXPECT_TRUE(works[k]->wait());
      EXPECT_TRUE(works[k]->isCompleted());
      EXPECT_EQ(tensors[k][0][0].item<int>(), 2 * static_cast<int>(k + 1) + 1);
    }
    auto future = context.world().backend()->allreduce(tensors.back())->getFuture();
    future->wait();
    EXPECT_TRUE(future->completed());
  });
}

TEST(Native, RegistersLargeCpuTensorsAndOthersOnDemand) {
  run_ranks(2, "native", [](Context& context) {
    const at::Tensor large = at::empty({1 << 20});
    EXPECT_TRUE(is_registered(large));
    EXPECT_FALSE(is_registered(at::empty({10})));
    at::Tensor small = empty_registered({10});
    EXPECT_TRUE(is_registered(small));
    small.fill_(context.rank() + 1);
    all_reduce(small, context.world());
    EXPECT_EQ(small[9].item<float>(), 3);
    EXPECT_EQ(empty_registered({2, 3}, at::kLong).sizes(), (std::vector<std::int64_t>{2, 3}));
  });
}

TEST(Native, WrongUseIsNamed) {
  run_ranks(1, "native", [](Context& context) {
    at::Tensor tensor = at::zeros({3});
    EXPECT_THROW(broadcast(tensor, context.world(), 5), UsageError);
    EXPECT_THROW(context.new_group({}), UsageError);
    EXPECT_THROW(context.new_group({0, 0}), UsageError);
    EXPECT_THROW(context.new_group({1}), UsageError);
    at::Tensor sparse_rows = at::zeros({3, 3}).to_sparse_csr();
    EXPECT_THROW(all_reduce(sparse_rows, context.world()), UsageError);
    EXPECT_THROW(all_reduce(tensor, context.world(), ReduceOp::BAND), UsageError);
  });
  EXPECT_THROW(run_ranks(1, "carrier-pigeon", [](Context&) {}), UsageError);
  EXPECT_THROW(Group().backend(), UsageError);
}

TEST(Native, AveragesWholeNumbersTowardsZero) {
  run_ranks(2, "native", [](Context& context) {
    for (const std::int64_t elements : {2, 10'000}) {
      at::Tensor numbers = at::full({elements}, context.rank() == 0 ? -5 : -2, at::kLong);
      all_reduce(numbers, context.world(), ReduceOp::AVG);
      EXPECT_TRUE(numbers.eq(-3).all().item<bool>()) << numbers[0];
      const at::Tensor part =
          reduce_scatter(at::full({elements}, context.rank() + 2, at::kInt), context.world(), ReduceOp::AVG);
      EXPECT_TRUE(part.eq(2).all().item<bool>()) << part[0];
      at::Tensor truths = at::ones({elements}, at::kBool);
      if (context.rank() == 1) truths[0].fill_(false);
      all_reduce(truths, context.world(), ReduceOp::AVG);
      EXPECT_EQ(truths.sum().item<std::int64_t>(), elements - 1);
    }
  });
}

TEST(Native, AllReduceTakesSparseTensorsWithoutOverlap) {
  run_ranks(2, "native", [](Context& context) {
    at::Tensor sparse = at::eye(3).to_sparse();
    all_reduce(sparse, context.world());
    EXPECT_TRUE(sparse.to_dense().equal(2 * at::eye(3)));
    at::Tensor expanded = at::ones({1}).expand({4});
    EXPECT_THROW(all_reduce(expanded, context.world()), UsageError);
    at::Tensor transposed = at::ones({2, 3}).t();
    all_reduce(transposed, context.world());
    EXPECT_TRUE(transposed.eq(2).all().item<bool>());
  });
}

TEST(Native, MismatchedTensorsAreAnErrorOnEveryRank) {
  std::atomic<int> errors = 0;
  run_ranks(3, "native", [&](Context& context) {
    at::Tensor tensor = at::zeros({context.rank() == 2 ? 7 : 8});
    try {
      all_reduce(tensor, context.world());
    } catch (const CommunicationError& e) {
      EXPECT_NE(std::string(e.what()).find("all_reduce(7 x float32"), std::string::npos) << e.what();
      ++errors;
    }
  });
  EXPECT_EQ(errors, 3);
}

// Behaviour that rondo's own engines have in common, on one host and between two.
class CustomEngines : public ::testing::TestWithParam<const char*> {
 protected:
  static void run(const std::function<void(Context&)>& body, Duration timeout = std::chrono::minutes(5)) {
    const bool one_host = std::string_view(GetParam()) == "native";
    run_ranks(2, GetParam(), body, timeout, one_host ? std::vector<int>{} : std::vector<int>{0, 1});
  }
};

INSTANTIATE_TEST_SUITE_P(
    OneAndTwoHosts, CustomEngines,
    ::testing::ValuesIn(have_gloo() ? std::vector<const char*>{"native", "hierarchical(native, gloo)"}
                                    : std::vector<const char*>{"native"}));

TEST_P(CustomEngines, TakeLazilyConjugatedAndNegatedTensors) {
  run([](Context& context) {
    const Group& world = context.world();
    const bool first = context.rank() == 0;
    // 1 + 1i on rank 0, 1 + 2i on rank 1.
    const at::Tensor plain = at::complex(at::ones({3}), at::full({3}, context.rank() + 1.0F));
    at::Tensor conjugated = plain.conj();
    ASSERT_TRUE(conjugated.is_conj());
    const auto imaginary = [](const at::Tensor& tensor) {
      return at::imag(tensor.resolve_conj())[2].item<float>();
    };

    const std::vector<at::Tensor> gathered = all_gather(conjugated, world);
    EXPECT_EQ(imaginary(gathered[0]), -1);
    EXPECT_EQ(imaginary(gathered[1]), -2);

    at::Tensor received = first ? conjugated : plain.clone();
    broadcast(received, world, 0);
    EXPECT_EQ(imaginary(received), -1);

    at::Tensor sum = first ? plain.clone().conj() : plain.clone();
    all_reduce(sum, world);
    EXPECT_EQ(imaginary(sum), -1 + 2);

    at::Tensor message = at::zeros_like(plain);
    if (first) {
      send(conjugated, world, 1);
    } else {
      recv(message, world, 0);
      EXPECT_EQ(imaginary(message), -1);
    }

    const at::Tensor negated = at::_neg_view(at::full({3}, 5.0F));
    ASSERT_TRUE(negated.is_neg());
    for (const at::Tensor& each : all_gather(negated, world)) EXPECT_EQ(each[2].item<float>(), -5);
  });
}

TEST_P(CustomEngines, WaitForever) {
  constexpr auto kForEver = std::chrono::milliseconds::max();
  const auto all_reduced = [](Context& context, std::chrono::milliseconds of_call,
                              std::chrono::milliseconds of_wait) {
    std::vector<at::Tensor> tensors{at::ones({10})};
    c10d::AllreduceOptions options;
    options.timeout = of_call;
    const auto backend = context.world().backend();
    const auto work = backend->allreduce(tensors, options);
    EXPECT_TRUE(work->wait(of_wait));
    EXPECT_EQ(tensors.front()[9].item<float>(), 2);
  };
  run(
      [&](Context& context) {
        all_reduced(context, kForEver, kNoTimeout);
        all_reduced(context, c10d::kUnsetTimeout, kForEver);
        context.world().backend()->setTimeout(kForEver);
        all_reduced(context, c10d::kUnsetTimeout, kNoTimeout);
      },
      Duration::max());
}

TEST(Native, MonitoredBarriersLeaveTheStoreAsItWas) {
  run_ranks(2, "native", [](Context& context) {
    const Group& world = context.world();
    c10d::BarrierOptions options;
    options.timeout = std::chrono::minutes(5);
    std::int64_t keys = 0;
    for (int call = 0; call < 100; ++call) {
      world.backend()->monitoredBarrier(options, false);
      if (call == 0) {
        barrier(world);  // both have returned
        keys = world.store()->getNumKeys();
        barrier(world);
      }
    }
    barrier(world);
    EXPECT_EQ(world.store()->getNumKeys(), keys);
  });
}

TEST(Native, FailedMonitoredBarrierLeavesLaterOnesIntact) {
  std::promise<void> failed;
  run_ranks(2, "native", [&](Context& context) {
    const auto backend = context.world().backend();
    const auto passes = [&](Duration timeout) {
      c10d::BarrierOptions options;
      options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
      try {
        backend->monitoredBarrier(options, true);
        return true;
      } catch (const TimeoutError&) {
        return false;
      }
    };
    const bool first = context.rank() == 0;
    // Rank 1 reaches the first call after rank 0 has given up its second one.
    if (first) {
      EXPECT_FALSE(passes(std::chrono::milliseconds(1)));
      EXPECT_FALSE(passes(std::chrono::milliseconds(1)));
      failed.set_value();
    } else {
      ASSERT_EQ(failed.get_future().wait_for(std::chrono::minutes(5)), std::future_status::ready);
      EXPECT_FALSE(passes(std::chrono::minutes(5)));
      EXPECT_FALSE(passes(std::chrono::minutes(5)));
    }
    EXPECT_TRUE(passes(std::chrono::minutes(5)));
    // Rank 1 has given up before rank 0 calls.
    barrier(context.world());
    EXPECT_TRUE(first || !passes(std::chrono::milliseconds(1)));
    barrier(context.world());
    EXPECT_TRUE(!first || passes(std::chrono::minutes(5)));
    EXPECT_TRUE(passes(std::chrono::minutes(5)));
  });
}

TEST(Native, ShutdownMakesLaterUseAnError) {
  run_ranks(2, "native", [](Context& context) {
    const Group world = context.world();
    context.shutdown();
    at::Tensor tensor = at::zeros({3});
    EXPECT_THROW(all_reduce(tensor, world), UsageError);
    EXPECT_THROW(context.world().backend(), UsageError);
  });
}

TEST(Context, KnowsItsRoleEpochAndMesh) {
  run_ranks(3, "native", [](Context& context) {
    EXPECT_EQ(context.role(), "default");
    EXPECT_EQ(context.epoch(), 0);
    EXPECT_EQ(context.mesh(), (Mesh{{"data", 3}}));
    EXPECT_EQ(context.group("data").ranks(), context.world().ranks());
    try {
      context.group("pipeline");
      ADD_FAILURE();
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("'pipeline'"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("data"), std::string::npos) << e.what();
    }
  });
}

TEST(Context, HasOneGroupPerMeshDimension) {
  run_ranks(4, "native", [](Context& context) {
    EXPECT_THROW(context.mesh({{"pipeline", 3}}), UsageError);
    const Context meshed = context.mesh({{"data", 2}, {"pipeline", 2}});
    EXPECT_EQ(meshed.mesh(), (Mesh{{"pipeline", 2}, {"data", 2}}));
    EXPECT_EQ(meshed.rank(), context.rank());
    at::Tensor along_data = at::full({1}, static_cast<float>(1 << context.rank()));
    at::Tensor along_pipeline = along_data.clone();
    all_reduce(along_data, meshed.group("data"));
    all_reduce(along_pipeline, meshed.group("pipeline"));
    EXPECT_EQ(along_data.item<float>(), context.rank() < 2 ? 3 : 12);
    EXPECT_EQ(along_pipeline.item<float>(), context.rank() % 2 == 0 ? 5 : 10);
    EXPECT_EQ(meshed.new_group_along({"pipeline", "data"}).size(), 4);
    EXPECT_EQ(meshed.within(meshed.group("data")).mesh(), (Mesh{{"data", 2}}));
    EXPECT_THROW(meshed.group("tensor"), UsageError);
  });
}

TEST(Registry, TakesAThirdPartysBackend) {
  register_backend("third-party",
                   [](const BackendRequest& request) { return c10::make_intrusive<NativeBackend>(request); });
  run_ranks(2, "third-party", [](Context& context) {
    EXPECT_EQ(context.backend_name(), "third-party");
    at::Tensor tensor = at::ones({3});
    all_reduce(tensor, context.world());
    EXPECT_EQ(tensor[0].item<float>(), 2);
  });
}

TEST(Init, FileMethodAndMissingRanks) {
  const TemporaryDirectory directory;
  const std::string path = directory / "meeting";
  const pid_t child = fork();
  const int rank = child == 0 ? 1 : 0;
  InitOptions options;
  options.backend = "native";
  options.init_method = "file://" + path;
  options.rank = rank;
  options.world_size = 2;
  Context context = init(options);
  at::Tensor tensor = at::full({2}, rank + 1);
  all_reduce(tensor, context.world());
  const bool right = tensor[1].item<int>() == 3;
  context.shutdown();
  if (child == 0) _exit(right ? 0 : 1);
  EXPECT_TRUE(right);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THROW(
      {
        options.store = c10::make_intrusive<c10d::HashStore>();
        options.timeout = std::chrono::milliseconds(50);
        init(options);
      },
      TimeoutError);
}

// Command lines know all of rondo's engines, and no others.
TEST(Engines, WhatIsDeclaredIsKnown) {
  std::vector<std::string> declared;
  for (const Declaration& engine : declared_engines()) declared.push_back(engine.name);
  std::vector<std::string> known = backend_names();
  // Other tests of this program register engines of their own.
  std::erase_if(known, [](const std::string& name) {
    return find_declaration(backend_declarations(), name)->summary == "an engine of this program";
  });
  EXPECT_EQ(known, declared);
}

}  // namespace
}  // namespace rondo::backend_test
