// The order of additions documented in docs/algorithms.md: values that cancel, so that another order gives
// another result, against a scalar model of each order.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/store.h"
#include "rondo/channel/thread_channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/executor.h"
#include "rondo/collective/reduction.h"
#include "rondo/collective/shared_memory/engine.h"
#include "tests/rank_threads.h"

namespace rondo::collective::order_of_additions_test {
namespace {

constexpr int kSmallestWorld = 3;
constexpr int kLargestWorld = 8;

float contribution(int rank, std::size_t element) {
  constexpr float kNumbers[] = {1e8F, 1.0F, -1e8F, 0.3F, 3e7F, -3e7F, 7.7F};
  std::uint64_t hash = (element + 1) * (2 * static_cast<std::uint64_t>(rank) + 3) * 0x9e3779b97f4a7c15U;
  hash ^= hash >> 29;
  return kNumbers[hash % std::size(kNumbers)];
}

std::vector<float> contributions(int rank, std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = contribution(rank, i);
  return values;
}

// The ranks' values at one element.
using Numbers = std::vector<float>;

Numbers numbers_at(std::size_t element, int world) {
  Numbers numbers;
  for (int rank = 0; rank < world; ++rank) numbers.push_back(contribution(rank, element));
  return numbers;
}

float add_in_order(const Numbers& numbers, const std::vector<int>& order) {
  float sum = numbers[static_cast<std::size_t>(order.front())];
  for (std::size_t i = 1; i < order.size(); ++i) sum += numbers[static_cast<std::size_t>(order[i])];
  return sum;
}

float in_rank_order(const Numbers& numbers) {
  return std::accumulate(numbers.begin() + 1, numbers.end(), numbers[0]);
}

// Returns the index of the part with an element, among `pieces` parts of `elements`; the first parts have one
// more.
int part_at(std::size_t element, std::size_t elements, int pieces) {
  const auto count = static_cast<std::size_t>(pieces);
  const std::size_t longer = elements % count * (elements / count + 1);
  if (element < longer) return static_cast<int>(element / (elements / count + 1));
  return static_cast<int>(elements % count + (element - longer) / (elements / count));
}

// Returns the order around a ring of `size`, from the member after `last` to `last`.
std::vector<int> round_to(int last, int size) {
  std::vector<int> order;
  for (int step = 1; step <= size; ++step) order.push_back((last + step) % size);
  return order;
}

// An element and its operation.
struct Place {
  std::size_t element;
  std::size_t elements;
  OperationKind operation;
  int root;
};

float ring_model(const Numbers& x, const Place& at) {
  const int world = static_cast<int>(x.size());
  if (at.operation != OperationKind::reduce)
    return add_in_order(x, round_to(part_at(at.element, at.elements, world), world));
  std::vector<int> backwards;  // along the chain: from the rank before the root back to the root
  for (int step = 1; step <= world; ++step) backwards.push_back((at.root + world - step) % world);
  return add_in_order(x, backwards);
}

// Returns the sum of virtual rank v after adding its children v + 1, v + 2, v + 4, ... below `limit`.
float binomial_sum(const Numbers& x, int v, int root, int limit) {
  const int world = static_cast<int>(x.size());
  float sum = x[static_cast<std::size_t>((v + root) % world)];
  for (int step = 1; step < limit && v + step < world; step *= 2)
    sum += binomial_sum(x, v + step, root, step);
  return sum;
}

float halving_doubling_model(const Numbers& x, const Place& at) {
  const int world = static_cast<int>(x.size());
  const int root = at.operation == OperationKind::reduce ? at.root : 0;
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(world)));
  const int pairs = world - core;
  std::vector<float> sums;
  const auto number = [&](int v) { return x[static_cast<std::size_t>((v + root) % world)]; };
  for (int i = 0; i < core; ++i)
    sums.push_back(i < pairs ? number(2 * i) + number(2 * i + 1) : number(i + pairs));
  for (int distance = core / 2; distance > 0; distance /= 2) {
    for (int i = 0; i < distance; ++i)
      sums[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(i + distance)];
  }
  return sums[0];
}

// Sums the tree on positions [begin, end); `rank_at` returns the rank at a position. The rank's own value
// first, then the children by rank.
float tree_sum(const Numbers& x, int begin, int end, const std::function<int(int)>& rank_at) {
  const auto top = [](int from, int to) {
    return from + static_cast<int>(std::bit_floor(static_cast<unsigned>(to - from))) - 1;
  };
  const int root = top(begin, end);
  std::vector<std::pair<int, float>> children;
  for (const auto& [from, to] : {std::pair{begin, root}, std::pair{root + 1, end}}) {
    if (from < to) children.emplace_back(rank_at(top(from, to)), tree_sum(x, from, to, rank_at));
  }
  std::sort(children.begin(), children.end());
  float sum = x[static_cast<std::size_t>(rank_at(root))];
  for (const auto& [rank, below] : children) sum += below;
  return sum;
}

float double_binary_tree_model(const Numbers& x, const Place& at) {
  const int world = static_cast<int>(x.size());
  const int others = world - 1;
  const int root = at.operation == OperationKind::reduce ? at.root : 0;
  const bool second = part_at(at.element, at.elements, 2) == 1;
  const auto rank_at = [&](int position) {
    if (second) position = others % 2 == 0 ? others - 1 - position : (position + 1) % others;
    return (root + 1 + position) % world;
  };
  return x[static_cast<std::size_t>(root)] + tree_sum(x, 0, others, rank_at);
}

int rows_of_grid(int world) {
  int rows = 1;
  for (int divisor = 1; divisor * divisor <= world; ++divisor) rows = world % divisor == 0 ? divisor : rows;
  return rows;
}

// Sums along each column towards the root's row, and along that row towards the root: the rank's own value
// first, then the sums of the next ranks in the column and in the row, by rank.
float torus_tree_sum(const Numbers& x, int rank, int root) {
  const int world = static_cast<int>(x.size());
  const int columns = world / rows_of_grid(world);
  const auto [row, column] = std::pair{rank / columns, rank % columns};
  std::vector<int> children;
  const int below = (rank + columns) % world;
  if (below / columns != root / columns) children.push_back(below);
  const int beside = row * columns + (column + 1) % columns;
  if (row == root / columns && beside % columns != root % columns) children.push_back(beside);
  std::sort(children.begin(), children.end());
  float sum = x[static_cast<std::size_t>(rank)];
  for (const int child : children) sum += torus_tree_sum(x, child, root);
  return sum;
}

// Sums down the columns of the grid, then along the last row.
float torus_model(const Numbers& x, const Place& at) {
  if (at.operation == OperationKind::reduce) return torus_tree_sum(x, at.root, at.root);
  const int world = static_cast<int>(x.size());
  const int rows = rows_of_grid(world);
  const int columns = world / rows;
  const int part = part_at(at.element, at.elements, world);
  Numbers by_column;
  for (int column = 0; column < columns; ++column) {
    Numbers in_column;
    for (int row = 0; row < rows; ++row)
      in_column.push_back(x[static_cast<std::size_t>(row * columns + column)]);
    by_column.push_back(add_in_order(in_column, round_to(part / columns, rows)));
  }
  return add_in_order(by_column, round_to(part % columns, columns));
}

using Model = float (*)(const Numbers&, const Place&);

// Operations whose order a model describes.
struct Case {
  const char* algorithm;
  Model model;
  std::vector<OperationKind> operations;
  std::vector<int> hosts = {};
};

std::vector<Case> cases(int world) {
  using enum OperationKind;
  const std::vector<OperationKind> all = {all_reduce, reduce_scatter, reduce};
  const Model by_rank = [](const Numbers& x, const Place&) { return in_rank_order(x); };
  const Model binomial = [](const Numbers& x, const Place& at) {
    return binomial_sum(x, 0, at.operation == reduce ? at.root : 0, static_cast<int>(x.size()));
  };
  // Two alternating hosts: even ranks, odd ranks, then both sums in the order of their holders.
  const Model by_host = [](const Numbers& x, const Place&) {
    Numbers sums(2);
    for (std::size_t rank = 0; rank < x.size(); ++rank)
      sums[rank % 2] = rank < 2 ? x[rank] : sums[rank % 2] + x[rank];
    return sums[0] + sums[1];
  };
  std::vector<int> turns;
  for (int rank = 0; rank < world; ++rank) turns.push_back(rank % 2);
  return {{"naive", by_rank, all},
          {"all_to_all", by_rank, all},
          {"direct", by_rank, all},
          {"hierarchical", by_rank, all},
          {"hierarchical", by_host, all, turns},
          {"ring", ring_model, all},
          {"reduce_broadcast", binomial, all},
          {"halving_doubling", halving_doubling_model, all},
          {"double_binary_tree", double_binary_tree_model, {all_reduce, reduce}},
          {"torus_2d", torus_model, all}};
}

// Lets ranks start one by one in a given order: the order of arrival must not matter.
class Arrivals {
 public:
  explicit Arrivals(std::vector<int> order) : order_(std::move(order)) {}
  void come(int rank) {
    while (order_[static_cast<std::size_t>(here_.load()) % order_.size()] != rank) std::this_thread::yield();
    ++here_;
  }

 private:
  const std::vector<int> order_;
  std::atomic<int> here_ = 0;
};

std::vector<std::vector<int>> arrival_orders(int world) {
  std::vector<int> forward(static_cast<std::size_t>(world));
  std::iota(forward.begin(), forward.end(), 0);
  std::vector<int> turned(forward.rbegin(), forward.rend());
  std::swap(turned[0], turned[turned.size() / 2]);
  return {forward, turned};
}

// Returns the elements of the buffer with this rank's result.
std::pair<std::size_t, std::size_t> result_of(const ScheduleRequest& request) {
  const std::size_t width = request.element_bytes;
  if (request.operation == OperationKind::reduce && request.rank != request.root) return {0, 0};
  if (request.operation != OperationKind::reduce_scatter) return {0, request.bytes.count / width};
  const Range part = part_of(request, request.rank);
  return {part.offset / width, (part.offset + part.bytes) / width};
}

// Runs a schedule on ranks that are threads, and compares each rank's result bit by bit with `model`.
void check_schedule(const std::string& algorithm, ScheduleRequest request, std::size_t elements,
                    const Model& model, const std::vector<int>& arrival, bool shared_memory) {
  const ThreadMesh mesh(request.world);
  MemoryStore store;
  Arrivals arrivals(arrival);
  request.bytes = {elements * sizeof(float)};
  tests::run_rank_threads(request.world, [&](int rank) {
    std::unique_ptr<Channel> channel = mesh.connect(rank);
    if (shared_memory) {
      channel = std::make_unique<SharedMemoryChannel>(
          store, SharedMemoryChannel::Options{"order", rank, request.world, std::chrono::seconds(60)});
    }
    ScheduleRequest own = request;
    own.rank = rank;
    std::vector<float> data = contributions(rank, elements);
    arrivals.come(rank);
    execute(make_schedule(algorithm, own), *channel, std::as_writable_bytes(std::span(data)), DType::float32,
            Reduction::sum, {Deadline::after(std::chrono::minutes(1)), nullptr});
    const auto [begin, end] = result_of(own);
    for (std::size_t i = begin; i < end; ++i) {
      const float expected = model(numbers_at(i, own.world), {i, elements, own.operation, own.root});
      ASSERT_EQ(data[i], expected) << algorithm << " " << rondo::name(own.operation) << " element " << i
                                   << " of " << elements << " on rank " << rank << " of " << own.world;
    }
  });
}

TEST(OrderOfAdditions, OfEveryAlgorithmIsTheDocumentedOne) {
  for (int world = kSmallestWorld; world <= kLargestWorld; ++world) {
    for (const Case& what : cases(world)) {
      for (const OperationKind operation : what.operations) {
        ScheduleRequest request{
            .operation = operation, .world = world, .root = world / 2, .hosts = what.hosts};
        for (const std::size_t elements : {5, 403}) {
          check_schedule(what.algorithm, request, elements, what.model, arrival_orders(world)[0], false);
        }
        // Pieces and segments of other sizes, another order of arrival, another channel.
        request.segment = {100};
        check_schedule(what.algorithm, request, 403, what.model, arrival_orders(world)[1], true);
      }
    }
  }
}

TEST(OrderOfAdditions, TheModelsTellOrdersApart) {
  // With three ranks few orders exist: reduce_broadcast's equals the rank order.
  for (int world = kSmallestWorld + 1; world <= kLargestWorld; ++world) {
    for (const Case& what : cases(world)) {
      const bool by_rank = find_algorithm(what.algorithm).adds_in_rank_order ||
                           (std::string(what.algorithm) == "hierarchical" && what.hosts.empty());
      bool differs = false;
      for (std::size_t i = 0; i < 403; ++i) {
        const Numbers numbers = numbers_at(i, world);
        differs |= what.model(numbers, {i, 403, OperationKind::all_reduce, 0}) != in_rank_order(numbers);
      }
      EXPECT_EQ(differs, !by_rank) << what.algorithm << " on " << world;
    }
  }
}

// With the option every algorithm gives the same bits on every layout of ranks.
TEST(OrderOfAdditions, RankOrderIgnoresAlgorithmHostsAndOffset) {
  const Model by_rank = [](const Numbers& x, const Place&) { return in_rank_order(x); };
  for (int world = kSmallestWorld; world <= kLargestWorld; ++world) {
    std::vector<int> turns;
    std::vector<int> uneven;
    for (int rank = 0; rank < world; ++rank) {
      turns.push_back(rank % 2);
      uneven.push_back(rank == 1 ? 0 : 1);
    }
    for (const Algorithm& algorithm : algorithms()) {
      for (const OperationKind operation : algorithm.operations) {
        if (!reduces(operation)) continue;
        for (const std::vector<int>& hosts : {std::vector<int>(), turns, uneven}) {
          ScheduleRequest request{.operation = operation, .world = world, .root = world / 2, .hosts = hosts};
          request.in_rank_order = true;
          for (const std::size_t elements : {5, 403})
            check_schedule(algorithm.name, request, elements, by_rank, arrival_orders(world)[1], false);
          if (algorithm.name != "hierarchical") break;  // the others ignore hosts
        }
      }
    }
  }
}

// Averages too, and types with a wider accumulator: divided before the only rounding, as in the engine.
TEST(OrderOfAdditions, RankOrderAveragesMatchTheEngine) {
  constexpr int kWorld = 5;
  constexpr std::size_t kElements = 300;
  for (const DType type : {DType::float32, DType::bfloat16, DType::float16}) {
    const std::size_t bytes = kElements * element_bytes(type);
    std::vector<std::vector<std::byte>> inputs(kWorld, std::vector<std::byte>(bytes));
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < kWorld; ++rank) {
      std::vector<std::byte>& input = inputs[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < kElements; ++i) {
        const float number = rank % 2 == 0 ? 3.7F * static_cast<float>(i) : -0.0F;
        if (type == DType::float32) std::memcpy(input.data() + 4 * i, &number, 4);
        // Any pattern of finite bits is suitable.
        const auto half =
            static_cast<std::uint16_t>((i * 97 + static_cast<std::size_t>(rank) * 331) % 0x5000);
        if (type != DType::float32) std::memcpy(input.data() + 2 * i, &half, 2);
      }
      sources.push_back(input.data());
    }
    std::vector<std::byte> expected(bytes);
    std::byte* target = expected.data();
    reduce({type, Reduction::average, sources, {&target, 1}, kElements, {}});
    for (const Algorithm& algorithm : algorithms()) {
      const ThreadMesh mesh(kWorld);
      tests::run_rank_threads(kWorld, [&](int rank) {
        ScheduleRequest request{
            .rank = rank, .world = kWorld, .bytes = {bytes}, .element_bytes = element_bytes(type)};
        request.in_rank_order = true;
        std::vector<std::byte> data = inputs[static_cast<std::size_t>(rank)];
        execute(make_schedule(algorithm.name, request), *mesh.connect(rank), data, type, Reduction::average,
                {Deadline::after(std::chrono::minutes(1)), nullptr});
        EXPECT_TRUE(data == expected) << algorithm.name << " " << rondo::name(type);
      });
    }
  }
}

// The engine adds in rank order on each of its paths: inside the slot, by every rank, by slices through
// staging, in place, and pulled. A part of a buffer gives the same result as the same elements in another
// buffer.
TEST(OrderOfAdditions, OfTheEngineIsThatOfTheRanks) {
  for (int world = kSmallestWorld; world <= kLargestWorld; ++world) {
    for (const bool registered : {false, true}) {
      MemoryStore store;
      const auto arena = std::make_shared<SharedArena>(MiB(256));
      const std::vector<std::vector<int>> orders = arrival_orders(world);
      std::vector<std::unique_ptr<Arrivals>> arrivals;
      for (const std::vector<int>& order : orders) arrivals.push_back(std::make_unique<Arrivals>(order));
      tests::run_rank_threads(world, [&](int rank) {
        shared_memory::GroupOptions options;
        options.rank = rank;
        options.size = world;
        options.timeout = std::chrono::seconds(60);
        shared_memory::Engine engine(store, options, arena);
        for (const std::size_t elements : {3, 1000, 5001, 70001}) {
          for (const auto& order : arrivals) {
            const auto ranks = static_cast<std::size_t>(world);
            const std::size_t bytes = elements * ranks * sizeof(float);
            auto* block = static_cast<float*>(arena->allocate(bytes));
            std::vector<float> heap(elements * ranks);
            float* data = registered ? block : heap.data();
            for (const OperationKind kind :
                 {OperationKind::all_reduce, OperationKind::reduce, OperationKind::reduce_scatter}) {
              for (std::size_t i = 0; i < elements * ranks; ++i) data[i] = contribution(rank, i);
              CollectiveRequest request{
                  .kind = kind, .type = DType::float32, .root = 1, .elements = elements};
              std::vector<float> scattered(elements);
              request.input = {reinterpret_cast<std::byte*>(data), elements * sizeof(float), {}};
              request.output = request.input;
              if (kind == OperationKind::reduce_scatter)
                request.output.base = reinterpret_cast<std::byte*>(scattered.data());
              order->come(rank);
              engine.wait(engine.start(request), {});
              const bool scatters = kind == OperationKind::reduce_scatter;
              const float* result = scatters ? scattered.data() : data;
              const std::size_t first = scatters ? static_cast<std::size_t>(rank) * elements : 0;
              if (kind == OperationKind::reduce && rank != 1) continue;
              for (std::size_t i = 0; i < elements; ++i) {
                ASSERT_EQ(result[i], in_rank_order(numbers_at(first + i, world)))
                    << name(kind) << " element " << i << " of " << elements << " on " << world;
              }
            }
            arena->release(block);
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace rondo::collective::order_of_additions_test
