#include "rondo/nn/optimizers/whole_norms.h"

#include <torch/types.h>

#include <cmath>

#include "rondo/nn/optimizers/squared_norm.h"

namespace rondo {

std::vector<WholeNormOptimizer::Norms> WholeNormOptimizer::norms(
    const std::vector<Part>& parts, const std::vector<at::Tensor>& directions) const {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> values;
  const at::Tensor zero = at::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parameters.push_back(parts[i].parameter);
    const bool moves = directions[i].defined();
    values.push_back(moves ? squared_norm(parts[i].parameter) : zero);
    values.push_back(moves ? squared_norm(directions[i]) : zero);
  }
  at::Tensor squares = at::stack(values).reshape({static_cast<std::int64_t>(parts.size()), 2});
  if (sum_) sum_(parameters, squares);
  std::vector<Norms> result;
  const double* square = squares.const_data_ptr<double>();
  for (std::size_t i = 0; i < parts.size(); ++i)
    result.push_back({std::sqrt(square[2 * i]), std::sqrt(square[2 * i + 1])});
  return result;
}

}  // namespace rondo
