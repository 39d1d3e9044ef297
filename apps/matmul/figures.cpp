#include "apps/matmul/figures.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "rondo/base/error.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

// A layer of so many inputs and outputs on so many rows. Those of a transformer and of a small network.
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

// The three products of a linear layer: forward, gradient of the input, gradient of the weight.
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

}  // namespace

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

}  // namespace rondo
