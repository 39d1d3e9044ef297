// `rondo bench servers`: what a parameter server costs by itself, without models.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "apps/bench/commands.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/port.h"
#include "rondo/server/cluster.h"
#include "rondo/server/service.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

struct ServersFlags {
  int runs = 300;
  int light_workers = 64;
  double seconds = 2;
  std::string json;
};

// A child process, killed at the end.
class Child {
 public:
  template <class Body>
  explicit Child(const Body& body) : pid_(fork()) {
    if (pid_ != 0) return;
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rondo bench servers: %s\n", error.what());
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

// A server process, and how to reach it.
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

// Bytes a second at which one core copies memory that no cache holds.
double copy_speed() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const TimePoint begin = Clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    best = std::max(best, static_cast<double>(kBytes) / seconds(Clock::now() - begin));
  }
  return best;
}

Json sparse_push(const ServersFlags& options) {
  constexpr std::uint64_t kRows = 1'000'000, kRow = 64, kTouched = 1000;
  const Bench bench;
  server::Cluster worker(bench.options(0, 1), bench.secret, {{"table", kRows, kRow, true}});
  // As in training every row has its page before the first push.
  worker.write_state(0, -1, std::vector<float>(kRows * kRow, 0.1F), 0, {});
  worker.open();
  std::mt19937_64 random(1);
  const std::vector<float> gradients(kTouched * kRow, 1e-3F);
  std::vector<double> microseconds;
  for (int run = 0; run < options.runs; ++run) {
    std::vector<std::uint64_t> touched;
    while (touched.size() < kTouched) {
      for (std::uint64_t i = touched.size(); i < kTouched; ++i) touched.push_back(random() % kRows);
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    }
    const TimePoint begin = Clock::now();
    worker.push_rows(0, touched, gradients.data(), {});
    worker.flush();
    microseconds.push_back(seconds(Clock::now() - begin) * 1e6);
  }
  std::sort(microseconds.begin(), microseconds.end());
  const double bytes = static_cast<double>(kTouched * kRow * sizeof(float));
  const double copy = bytes / copy_speed() * 1e6;
  return {{"rows", kTouched},
          {"bytes", bytes},
          {"push_min_us", microseconds.front()},
          {"push_median_us", microseconds[microseconds.size() / 2]},
          {"copy_us", copy},
          {"bound_us", 2 * copy + 100}};
}

// Steps of each worker: pull all, push all, of variables like those of an MLP 784-128-64-10.
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
  // The chief is the first worker. It looks at the others' clocks between two steps, at begin and end.
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

int run_servers(const ServersFlags& options) {
  const Json result = {{"sparse_push", sparse_push(options)},
                       {"mlp", steps_of_workers(2, false, options.seconds)},
                       {"light", steps_of_workers(std::min(options.light_workers, server::kMostWorkers), true,
                                                  options.seconds)}};
  if (options.json != "-") {
    const Json& push = result["sparse_push"];
    std::printf(
        "sparse push of 1,000 rows of 1,000,000 x 64: %.0f us, fastest %.0f us; 2 copies + 100 us: %.0f us\n",
        push["push_median_us"].get<double>(), push["push_min_us"].get<double>(),
        push["bound_us"].get<double>());
    std::printf("2 workers that pull and push an MLP 784-128-64-10: %.0f steps/s together\n",
                result["mlp"]["steps_per_s"].get<double>());
    std::printf("%d light workers: %.0f steps/s together, the slowest %.2f of the mean\n",
                result["light"]["workers"].get<int>(), result["light"]["steps_per_s"].get<double>(),
                result["light"]["slowest_of_mean"].get<double>());
  }
  write_json(options.json, result);
  return 0;
}

}  // namespace

Command add_servers(CLI::App& app) {
  const auto options = std::make_shared<ServersFlags>();
  CLI::App* command =
      app.add_subcommand("servers", "What a parameter server costs by itself, without models");
  command->add_option("--runs", options->runs, "sparse pushes")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command->add_option("--light-workers", options->light_workers, "processes of the last measurement")
      ->check(rondo::positive_number())
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "of each measurement of steps")
      ->check(rondo::positive_number())
      ->capture_default_str();
  add_json_flag(*command, options->json);
  return {command, [options] { return run_servers(*options); }};
}

}  // namespace rondo::bench
