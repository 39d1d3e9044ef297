// `rondo bench-dev servers`: the cost of a parameter server alone, without models.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/network.h"
#include "rondo/server/cluster.h"
#include "rondo/server/service.h"

namespace rondo::bench {
namespace {

struct ServersFlags {
  int runs = 300;
  int light_workers = 64;
  double seconds = 2;
};

// A child process, killed by the destructor.
class Child {
 public:
  template <class Body>
  explicit Child(const Body& body) : pid_(fork()) {
    if (pid_ != 0) return;
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rondo bench-dev servers: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

// A server process and its address.
struct Bench {
  control::JobSecret secret = control::JobSecret::make();
  std::string address = str("127.0.0.1:", launch::find_free_port());
  Child server{[this] { server::Service({.address = address}, secret).run([] { return getppid() == 1; }); }};

  server::ClusterOptions options(std::uint32_t worker, std::uint32_t workers) const {
    server::ClusterOptions options;
    options.addresses = {address};
    options.worker = worker;
    options.server.workers = workers;
    return options;
  }
};

// Returns the rate in bytes per second at which one core copies uncached memory.
double copy_speed() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const double elapsed = timed([&] { std::memcpy(to.data(), from.data(), kBytes); });
    best = std::max(best, static_cast<double>(kBytes) / elapsed);
  }
  return best;
}

Json sparse_push(const ServersFlags& flags) {
  constexpr std::uint64_t kRows = 1'000'000, kRow = 64, kTouched = 1000;
  const Bench bench;
  server::Cluster worker(bench.options(0, 1), bench.secret, {{"table", kRows, kRow, true}});
  // Touches all pages of all rows before the first push, as in training.
  worker.write_state(0, -1, std::vector<float>(kRows * kRow, 0.1F), 0, {});
  worker.open();
  std::mt19937_64 random(1);
  const std::vector<float> gradients(kTouched * kRow, 1e-3F);
  std::vector<double> microseconds;
  for (int run = 0; run < flags.runs; ++run) {
    std::vector<std::uint64_t> touched;
    while (touched.size() < kTouched) {
      for (std::uint64_t i = touched.size(); i < kTouched; ++i) touched.push_back(random() % kRows);
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    }
    microseconds.push_back(1e6 * timed([&] {
                             worker.push_rows(0, touched, gradients.data(), {});
                             worker.flush();
                           }));
  }
  const RepeatedTime push = repeated(microseconds);
  const double bytes = static_cast<double>(kTouched * kRow * sizeof(float));
  const double copy = bytes / copy_speed() * 1e6;
  return {{"rows", kTouched},           {"bytes", bytes},  {"push_min_us", push.min},
          {"push_median_us", push.p50}, {"copy_us", copy}, {"bound_us", 2 * copy + 100}};
}

// Returns the rates at which workers pull and push all variables: a few small ones, or those of an MLP
// 784-128-64-10.
Json steps_of_workers(int workers, bool light, double length) {
  const std::vector<server::VariableSpec> variables =
      light ? std::vector<server::VariableSpec>{{"w", 64, 16, false}, {"b", 64, 1, false}}
            : std::vector<server::VariableSpec>{{"w1", 128, 784, false}, {"b1", 128, 1, false},
                                                {"w2", 64, 128, false},  {"b2", 64, 1, false},
                                                {"w3", 10, 64, false},   {"b3", 10, 1, false}};
  const Bench bench;
  const auto count = static_cast<std::uint32_t>(workers);
  server::Cluster chief(bench.options(0, count), bench.secret, variables);
  chief.open();
  std::vector<std::vector<float>> values;
  for (const auto& variable : variables) values.emplace_back(variable.elements(), 1e-4F);
  const auto work = [&](server::Cluster& worker, const std::function<bool()>& goes_on) {
    for (std::uint64_t step = 0; goes_on(); ++step) {
      worker.begin_step(step);
      for (std::size_t v = 0; v < values.size(); ++v) worker.pull(v, values[v]);
      for (std::size_t v = 0; v < values.size(); ++v) worker.push(v, values[v], {});
      worker.end_step(1);
    }
  };
  std::vector<Child> children;
  for (std::uint32_t w = 1; w < count; ++w) {
    children.emplace_back([&, w] {
      server::Cluster worker(bench.options(w, count), bench.secret, variables);
      worker.wait_until_open();
      work(worker, [] { return true; });
    });
  }
  const auto clocks = [&] {
    std::vector<double> result;
    for (const auto& worker : chief.figures().workers) result.push_back(static_cast<double>(worker.clock));
    return result;
  };
  // The chief is the first worker. It reads the other workers' clocks at the start and the end, between two
  // steps.
  std::vector<double> before;
  std::vector<double> after;
  TimePoint begin;
  work(chief, [&] {
    if (!before.empty() && seconds(Clock::now() - begin) < length) return true;
    std::vector<double> now = clocks();
    if (!before.empty()) {
      after = std::move(now);
      return false;
    }
    if (*std::min_element(now.begin(), now.end()) >= 3) {
      before = std::move(now);
      begin = Clock::now();
    }
    return true;
  });
  const double elapsed = seconds(Clock::now() - begin);
  std::vector<double> rates;
  for (std::size_t w = 0; w < after.size(); ++w) rates.push_back((after[w] - before[w]) / elapsed);
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  const double slowest = *std::min_element(rates.begin(), rates.end());
  return {{"workers", workers},
          {"steps_per_s", sum},
          {"slowest_of_mean", slowest / (sum / static_cast<double>(workers))}};
}

Json run_servers(const ServersFlags& flags, bool prints) {
  Json result = {
      {"sparse_push", sparse_push(flags)},
      {"mlp", steps_of_workers(2, false, flags.seconds)},
      {"light", steps_of_workers(std::min(flags.light_workers, server::kMostWorkers), true, flags.seconds)}};
  if (!prints) return result;
  Json rows = Json::array({result["mlp"], result["light"]});
  rows[0]["variables"] = "pull and push an MLP 784-128-64-10";
  rows[1]["variables"] = "light";
  print_table(Json::array({result["sparse_push"]}), {{"sparse push of rows", -20, "rows"},
                                                     {"p50 us", 10, "push_median_us"},
                                                     {"min us", 10, "push_min_us"},
                                                     {"2 copies + 100 us", 18, "bound_us"}});
  print_table(rows, {{"workers", 8, "workers"},
                     {"steps/s together", 18, "steps_per_s"},
                     {"slowest / mean", 16, "slowest_of_mean", 2},
                     {"", -36, "variables"}});
  return result;
}

}  // namespace

Command add_servers(CLI::App& parent) {
  return add_benchmark<ServersFlags>(
      parent,
      {"servers", "Costs of a parameter server alone, without models",
       "Examples:\n  rondo bench-dev servers"},
      [](CLI::App& app, ServersFlags& flags) {
        add_turns_flag(app, "--runs", flags.runs, "number of sparse pushes");
        app.add_option("--light-workers", flags.light_workers, "worker processes of the last measurement")
            ->check(positive_number());
        app.add_option("--seconds", flags.seconds, "duration of each measurement of steps, in seconds")
            ->check(positive_number());
      },
      run_servers);
}

}  // namespace rondo::bench
