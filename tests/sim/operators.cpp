// All operators that libtorch does not compose of others: one boxed function that runs the CPU's kernel on
// host aliases.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <set>

#include "tests/sim/device.h"
#include "tests/sim/generator.h"
#include "tests/sim/host_alias.h"
#include "tests/sim/launch.h"

namespace rondo::sim {
namespace {

// Returns true for operators whose result the host needs, so that it waits for the device.
bool returns_to_host(const std::string& name) {
  static const std::set<std::string> names = {
      "aten::_local_scalar_dense", "aten::equal",    "aten::is_nonzero", "aten::nonzero",
      "aten::masked_select",       "aten::_unique2", "aten::unique_dim", "aten::bincount"};
  return names.contains(name);
}

// Returns true for operators that move indices on the CPU to the device themselves, as on CUDA.
bool takes_host_indices(const std::string& name) {
  return name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_";
}

// Returns true if results are views of arguments.
bool makes_view(const c10::FunctionSchema& schema) {
  return !schema.returns().empty() && schema.returns().front().alias_info() != nullptr &&
         !schema.returns().front().alias_info()->isWrite();
}

// Returns true for operators that allocate memory and compute nothing.
bool allocates_only(const std::string& name) {
  return name.starts_with("aten::empty") || name == "aten::resize_" || name.starts_with("aten::set_");
}

// An operator with its arguments on the stack.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : schema_(op.schema()), name_(schema_.operator_name().name), stack_(stack) {}

  // Replaces device tensors by host aliases.
  void to_host() {
    const std::size_t first = stack_.size() - schema_.arguments().size();
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) {
      const c10::Argument& argument = schema_.arguments()[i];
      const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      replace(stack_[first + i], argument, writes);
    }
    // Last, when the generator of a factory function's device is known.
    if (generator_ != nullptr) *generator_ = next_generator();
    if (device_ < 0) device_ = current_device();
  }

  void say_launch() {
    if (takes_host_indices(name_)) {
      for (int i = 0; i < host_indices_; ++i)
        on_copy(Copy::host_to_device, {name_, current_stream(device_), {}}, /*blocks=*/true);
    }
    if (name_ == "aten::_local_scalar_dense") {
      on_copy(Copy::device_to_host, {name_, current_stream(device_), uses_}, /*blocks=*/true);
      return;
    }
    if (makes_view(schema_) || allocates_only(name_)) return;
    on_launch({name_, current_stream(device_), std::move(uses_)});
    if (returns_to_host(name_)) on_synchronise();
  }

  // Replaces results by device tensors.
  void to_device() {
    aliases_.write_back();
    for (std::size_t i = stack_.size() - schema_.returns().size(); i < stack_.size(); ++i) {
      c10::IValue& value = stack_[i];
      if (value.isTensor()) {
        value = aliases_.on_device(value.toTensor(), device_);
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> tensors = value.toTensorVector();
        for (at::Tensor& tensor : tensors) tensor = aliases_.on_device(tensor, device_);
        value = std::move(tensors);
      }
    }
  }

 private:
  void replace(c10::IValue& value, const c10::Argument& argument, bool writes) {
    if (value.isTensor()) {
      value = host(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = host(tensor, writes);
      value = std::move(tensors);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList())
        tensors.push_back(tensor ? std::optional(host(*tensor, writes, takes_host_indices(name_))) : tensor);
      value = std::move(tensors);
    } else if (value.isDevice() && value.toDevice().type() == kSim) {
      device_ = value.toDevice().has_index() ? value.toDevice().index() : current_device();
      TORCH_CHECK(device_ < device_count(), name_, ": there is no device ", value.toDevice(),
                  "; the number of devices is ", device_count());
      value = c10::Device(c10::kCPU);
    } else if (value.isGenerator() && value.toGenerator().device().type() == kSim) {
      given_generator_ = value.toGenerator();
      generator_ = &value;
    } else if (value.isNone() && argument.name() == "generator") {
      generator_ = &value;
    }
  }

  at::Tensor host(const at::Tensor& tensor, bool writes, bool is_index = false) {
    if (!tensor.defined()) return tensor;
    if (tensor.device().type() != kSim) {
      if (is_index) {
        ++host_indices_;
        return tensor;
      }
      TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0 && !writes, name_, ": a tensor on ", tensor.device(),
                  " of shape ", tensor.sizes(), " beside tensors on the simulated accelerator");
      return tensor;
    }
    TORCH_CHECK(device_ < 0 || device_ == tensor.device().index(), name_,
                ": tensors on sim:", static_cast<int>(device_), " and ", tensor.device());
    device_ = tensor.device().index();
    uses_.push_back({tensor, writes});
    return aliases_.alias_of(tensor);
  }

  at::Generator next_generator() const {
    const at::Generator& from = given_generator_.defined() ? given_generator_ : default_generator(device_);
    auto& generator = static_cast<Generator&>(*from.unsafeGetGeneratorImpl());
    const std::lock_guard lock(generator.mutex_);
    return generator.next();
  }

  const c10::FunctionSchema& schema_;
  const std::string name_;
  torch::jit::Stack& stack_;
  HostAliases aliases_;
  std::vector<Use> uses_;
  c10::DeviceIndex device_ = -1;        // device of the tensors, or named
  int host_indices_ = 0;                // index tensors on the CPU
  c10::IValue* generator_ = nullptr;    // on the stack
  at::Generator given_generator_ = {};  // undefined: the device's own
};

void run_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  Call call(op, *stack);
  call.to_host();
  call.say_launch();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.to_device();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace
}  // namespace rondo::sim
