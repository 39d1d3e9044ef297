#include "rondo/nn/experts/token_exchange.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <numeric>

#include "rondo/backend/collectives.h"

namespace rondo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor sent(const at::Tensor& rows, const std::vector<std::int64_t>& input_rows,
                const std::vector<std::int64_t>& output_rows, const Group& group) {
  const std::int64_t count = std::accumulate(output_rows.begin(), output_rows.end(), std::int64_t{0});
  at::Tensor result = at::empty({count, rows.size(1)}, rows.options().requires_grad(false));
  all_to_all_single(result, rows, output_rows, input_rows, group);
  return result;
}

class ExchangeRows : public torch::autograd::Function<ExchangeRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const std::vector<std::int64_t>& input_rows,
                            const std::vector<std::int64_t>& output_rows, const Group& group) {
    context->saved_data["input_rows"] = input_rows;
    context->saved_data["output_rows"] = output_rows;
    context->saved_data["group"] = at::IValue::make_capsule(c10::make_intrusive<ExchangeGroup>(group));
    return sent(rows, input_rows, output_rows, group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Group group =
        c10::static_intrusive_pointer_cast<ExchangeGroup>(context->saved_data["group"].toCapsule())->group;
    return {sent(gradients[0], context->saved_data["output_rows"].toIntVector(),
                 context->saved_data["input_rows"].toIntVector(), group),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  // What lets a group wait in the graph for the backward pass.
  struct ExchangeGroup : torch::CustomClassHolder {
    explicit ExchangeGroup(Group g) : group(std::move(g)) {}
    Group group;
  };
};

class ScaleGradient : public torch::autograd::Function<ScaleGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value, double factor) {
    context->saved_data["factor"] = factor;
    return value.view_as(value);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const double factor = context->saved_data["factor"].toDouble();
    return {factor == 0 ? at::zeros_like(gradients[0]) : gradients[0] * factor, at::Tensor()};
  }
};

class AuxiliaryLoss : public torch::autograd::Function<AuxiliaryLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value, const at::Tensor& loss,
                            double factor) {
    context->saved_data["gradient"] = at::full_like(loss, factor);
    return value.view_as(value);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0], context->saved_data["gradient"].toTensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor exchange_rows(const at::Tensor& rows, const std::vector<std::int64_t>& input_rows,
                         const std::vector<std::int64_t>& output_rows, const Group& group) {
  return ExchangeRows::apply(rows, input_rows, output_rows, group);
}

at::Tensor scale_gradient(const at::Tensor& value, double factor) {
  return ScaleGradient::apply(value, factor);
}

at::Tensor with_auxiliary_loss(const at::Tensor& value, const at::Tensor& loss, double factor) {
  return AuxiliaryLoss::apply(value, loss, factor);
}

}  // namespace rondo
