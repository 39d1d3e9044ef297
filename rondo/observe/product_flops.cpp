#include "rondo/observe/product_flops.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <vector>

#include "rondo/base/replica.h"

namespace rondo {
namespace {

using Sizes = c10::IntArrayRef;

double product(Sizes sizes) {
  double result = 1;
  for (const std::int64_t size : sizes) result *= static_cast<double>(size);
  return result;
}

double of_product(Sizes a, Sizes b) { return 2 * product(a) * static_cast<double>(b.back()); }

// input [samples, channels, ...], weight [outputs, channels of a group, ...], or transposed [channels, ...].
double of_convolution(Sizes input, Sizes weight, const std::vector<std::int64_t>& stride,
                      const std::vector<std::int64_t>& padding, const std::vector<std::int64_t>& dilation,
                      bool transposed) {
  double places = static_cast<double>(input[0]);
  for (std::size_t d = 2; d < input.size(); ++d) {
    const std::size_t i = d - 2;
    const auto of = [i](const std::vector<std::int64_t>& values) {
      return values[std::min(i, values.size() - 1)];
    };
    const std::int64_t reach = of(dilation) * (weight[d] - 1) + 1;
    places *=
        static_cast<double>(transposed ? input[d] : (input[d] + 2 * of(padding) - reach) / of(stride) + 1);
  }
  return 2 * places * product(weight);
}

// query and key are [samples, heads, length, width]; counts the scores and the weighted sums.
double of_attention(Sizes query, Sizes key) { return 4 * product(query) * static_cast<double>(key[2]); }

double flops_of(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const auto sizes = [&](std::size_t i) { return inputs[i].toTensor().sizes(); };
  if ((name == "aten::mm" || name == "aten::bmm") && inputs.size() >= 2)
    return of_product(sizes(0), sizes(1));
  if ((name == "aten::addmm" || name == "aten::baddbmm") && inputs.size() >= 3)
    return of_product(sizes(1), sizes(2));
  if (name == "aten::convolution" && inputs.size() >= 7)
    return of_convolution(sizes(0), sizes(1), inputs[3].toIntVector(), inputs[4].toIntVector(),
                          inputs[5].toIntVector(), inputs[6].toBool());
  if (name.starts_with("aten::_scaled_dot_product_") && name.find("attention") != std::string_view::npos &&
      name.find("backward") == std::string_view::npos && name.find("math") == std::string_view::npos &&
      inputs.size() >= 2)
    return of_attention(sizes(0), sizes(1));
  return 0;
}

}  // namespace

// The counters of the process. libtorch's callbacks are plain functions, so one callback serves all counters.
class FlopsCounters {
 public:
  // Never destroyed: threads may compute until the process ends.
  static FlopsCounters& of_process() {
    static auto* const counters = new FlopsCounters();
    return *counters;
  }

  void add(ProductFlops& counter) {
    const std::lock_guard lock(mutex_);
    if (counters_.empty()) {
      callback_ = at::addGlobalCallback(
          at::RecordFunctionCallback(see).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    }
    counters_.push_back(&counter);
  }

  void remove(ProductFlops& counter) {
    const std::lock_guard lock(mutex_);
    std::erase(counters_, &counter);
    if (counters_.empty()) at::removeCallback(callback_);
  }

 private:
  static std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& operation) {
    if (!at::GradMode::is_enabled()) return nullptr;
    const double flops = flops_of(operation.name(), operation.inputs());
    if (flops > 0) of_process().count(flops);
    return nullptr;
  }

  void count(double flops) {
    const int rank = replica_of_this_rank();
    const std::lock_guard lock(mutex_);
    for (ProductFlops* const counter : counters_) {
      if (counter->rank_ == rank) counter->flops_.store(counter->flops_.load() + flops);
    }
  }

  std::mutex mutex_;  // protects the fields below, and every counter's flops_ against a second writer
  std::vector<ProductFlops*> counters_;
  at::CallbackHandle callback_ = 0;  // registered while there are counters
};

ProductFlops::ProductFlops() : rank_(replica_of_this_rank()) { FlopsCounters::of_process().add(*this); }

ProductFlops::~ProductFlops() { FlopsCounters::of_process().remove(*this); }

double ProductFlops::count() const { return flops_.load(); }

}  // namespace rondo
