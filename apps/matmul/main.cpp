// `rondo-matmul`: measures which of MKL's float32 kernels are faster here, and stores the result. Not for
// users: other programs of rondo run it on a machine without a measurement.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/common/child_output.h"
#include "apps/common/command_line.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/kernels/matmul_choice.h"

namespace rondo {
namespace {

// A linear layer on `rows` rows. The list has layers of a transformer and of a small network.
struct Layer {
  std::int64_t rows, inputs, outputs;
};
constexpr Layer kLayers[] = {{256, 512, 2048}, {256, 2048, 512}, {512, 512, 512}, {32, 784, 128}};
constexpr int kRepetitions = 7;

struct Product {
  std::function<at::Tensor()> compute;
  at::Tensor exact;  // in float64
  double flops;
};

// Returns the three products of a linear layer: forward, gradient of the input, gradient of the weight.
std::vector<Product> products_of(const Layer& layer) {
  const at::Tensor input = torch::randn({layer.rows, layer.inputs});
  const at::Tensor weight = torch::randn({layer.outputs, layer.inputs});
  const at::Tensor gradient = torch::randn({layer.rows, layer.outputs});
  const double flops = 2.0 * static_cast<double>(layer.rows * layer.inputs * layer.outputs);
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  return {{[=] { return input.mm(weight.t()); }, wide(input).mm(wide(weight).t()), flops},
          {[=] { return gradient.mm(weight); }, wide(gradient).mm(wide(weight)), flops},
          {[=] { return gradient.t().mm(input); }, wide(gradient).t().mm(wide(input)), flops}};
}

double best_microseconds(const std::function<at::Tensor()>& compute) {
  compute();
  double best = INFINITY;
  for (int i = 0; i < kRepetitions; ++i) {
    const TimePoint begin = Clock::now();
    compute();
    best = std::min(best, milliseconds(Clock::now() - begin) * 1e3);
  }
  return best;
}

double relative_error(const at::Tensor& result, const at::Tensor& exact) {
  return ((result.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

// Returns one process's times and errors for every measured shape and form: {"us": [...], "flops": [...],
// "errors": [...]}. Single-threaded; takes about 0.2 s.
nlohmann::json measure_products() {
  at::set_num_threads(1);
  torch::manual_seed(1);
  nlohmann::json answer{{"us", nlohmann::json::array()},
                        {"flops", nlohmann::json::array()},
                        {"errors", nlohmann::json::array()}};
  for (const Layer& layer : kLayers) {
    for (const Product& product : products_of(layer)) {
      answer["us"].push_back(best_microseconds(product.compute));
      answer["flops"].push_back(product.flops);
      answer["errors"].push_back(relative_error(product.compute(), product.exact));
    }
  }
  return answer;
}

// Combines the measurements of several processes with one choice: the best time of each product counts.
// Throws Error if the processes measured different products.
MatmulFigures combine(const std::vector<nlohmann::json>& processes) {
  const nlohmann::json& first = processes.at(0);
  const std::size_t products = first.at("us").size();
  double logarithms = 0;
  double squares = 0;
  for (std::size_t i = 0; i < products; ++i) {
    double best = INFINITY;
    for (const nlohmann::json& process : processes) {
      if (process.at("us").size() != products) throw Error("processes measured different products");
      best = std::min(best, process.at("us").at(i).get<double>());
    }
    logarithms += std::log(first.at("flops").at(i).get<double>() / best * 1e-3);
    squares += std::pow(first.at("errors").at(i).get<double>(), 2);
  }
  const auto count = static_cast<double>(products);
  return {std::exp(logarithms / count), std::sqrt(squares / count)};
}

}  // namespace
}  // namespace rondo

namespace {

using rondo::Error;
using rondo::str;

constexpr int kLeastTurns = 2, kMostTurns = 6;
constexpr double kSettled = 1.03;  // smallest improvement of a turn that counts

// Results of each choice's processes. The choices alternate, so that a slow moment of the machine affects
// both.
struct Turns {
  std::vector<nlohmann::json> standard;
  std::vector<nlohmann::json> fast;
};

nlohmann::json measure_in_a_process(const std::string& choice) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const rondo::ChildOutput output =
      rondo::run_child({self, "--one"}, {{rondo::kMatmulVariable, choice}, {"OMP_NUM_THREADS", "1"}});
  if (output.exit_code != 0) throw Error(str(self, " --one ended with exit code ", output.exit_code));
  return rondo::parse_json_strict(output.text, self);
}

// Alternates until the best times settle: the stored result is permanent, and the machine may be busy now.
rondo::MatmulMeasurement measure() {
  Turns turns;
  rondo::MatmulMeasurement measured{rondo::machine_name(), {}, {}, {}};
  for (int turn = 1; turn <= kMostTurns; ++turn) {
    for (const bool fast : {false, true}) {
      nlohmann::json process = measure_in_a_process(fast ? "fast" : "libtorch");
      measured.library = process.at("library");
      // Without a second choice of kernels both are the default.
      if (fast && !process.at("fast").get<bool>()) process = turns.standard.back();
      (fast ? turns.fast : turns.standard).push_back(std::move(process));
    }
    const rondo::MatmulFigures before[] = {measured.standard, measured.fast};
    measured.standard = rondo::combine(turns.standard);
    measured.fast = rondo::combine(turns.fast);
    if (turn >= kLeastTurns && measured.standard.gflops <= kSettled * before[0].gflops &&
        measured.fast.gflops <= kSettled * before[1].gflops)
      break;
  }
  return measured;
}

int run(bool one) {
  if (one) {
    nlohmann::json answer = rondo::measure_products();
    answer["fast"] = rondo::matmul_choice().fast;
    answer["library"] = rondo::library_identity(rondo::loaded_libtorch());
    std::cout << answer.dump() << std::endl;
    return 0;
  }
  const rondo::MatmulMeasurement measured = measure();
  rondo::keep_matmul_measurement(rondo::matmul_measurements_path(), measured);
  std::cout << "default " << measured.standard.gflops << " GFLOP/s, error " << measured.standard.error
            << "; fast " << measured.fast.gflops << " GFLOP/s, error " << measured.fast.error << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the kernels for float32 matrix products and keeps the result.", "rondo-matmul");
  bool one = false;
  app.add_flag("--one", one, "Measure the kernels that RONDO_MATMUL selects and print the result as JSON");
  return rondo::run_command_line(app, argc, argv, [&] { return run(one); });
}
