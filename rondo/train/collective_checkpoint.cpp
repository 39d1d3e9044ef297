#include "rondo/train/collective_checkpoint.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <exception>
#include <map>
#include <optional>

#include "rondo/train/agreement.h"

namespace rondo {
namespace {

// The parameters of which a rank may have a part: under the optimizer's name, with the part, by the tensor
// that the model has.
std::map<const c10::TensorImpl*, ModelTensor> divided_parameters(PreparedModel& prepared,
                                                                 const NamedTensors& model) {
  std::map<const c10::TensorImpl*, ModelTensor> divided;
  if (!prepared.parts().optimizes_parts()) return divided;
  const auto parts = prepared.module().named_parameters();
  for (const NamedTensor& entry : model) {
    const at::Tensor* part = parts.find(entry.name);
    if (part != nullptr) divided.emplace(entry.tensor.unsafeGetTensorImpl(), ModelTensor{entry.name, *part});
  }
  return divided;
}

// Has all sources of a checkpoint made in the order in which they are written, whether they are or not.
class Procession {
 public:
  explicit Procession(CheckpointContents& contents) {
    for (TensorSources* sources : {&contents.model, &contents.optimizer_tensors}) {
      for (const std::size_t number : order_in_file(*sources)) {
        TensorSource& source = (*sources)[number];
        const std::size_t place = makes_.size();
        makes_.push_back(std::move(source.make));
        source.make = [this, place] { return make(place); };
      }
    }
  }
  Procession(const Procession&) = delete;
  Procession& operator=(const Procession&) = delete;

  void make_rest() {
    while (made_ < makes_.size()) make(made_);
  }
  // A source threw: the ranks are not together any more.
  bool broken() const { return making_; }

 private:
  at::Tensor make(std::size_t place) {
    making_ = true;
    at::Tensor tensor = makes_[place]();
    making_ = false;
    made_ = place + 1;
    return tensor;
  }

  std::vector<std::function<at::Tensor()>> makes_;
  std::size_t made_ = 0;
  bool making_ = false;
};

}  // namespace

TensorSources model_sources(PreparedModel& prepared, const NamedTensors& model) {
  const std::map<const c10::TensorImpl*, ModelTensor> divided = divided_parameters(prepared, model);
  TensorSources sources;
  for (const NamedTensor& entry : model) {
    TensorSource source = source_of(entry);
    const auto found = divided.find(entry.tensor.unsafeGetTensorImpl());
    if (found != divided.end()) {
      const ModelTensor& part = found->second;
      source.dtype = part.tensor.scalar_type();
      source.sizes = prepared.parts().whole_sizes(part.name);
      source.make = [&parts = prepared.parts(), name = part.name] { return parts.whole_parameter(name); };
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

NamedTensors stand_ins(PreparedModel& prepared, const NamedTensors& model) {
  const std::map<const c10::TensorImpl*, ModelTensor> divided = divided_parameters(prepared, model);
  std::map<const c10::TensorImpl*, at::Tensor> made;  // a shared parameter stays shared
  NamedTensors result = model;
  for (NamedTensor& entry : result) {
    const c10::TensorImpl* const own = entry.tensor.unsafeGetTensorImpl();
    const auto found = divided.find(own);
    if (found == divided.end()) continue;
    at::Tensor& stand_in = made[own];
    if (!stand_in.defined()) {
      const ModelTensor& part = found->second;
      stand_in = at::zeros({}, part.tensor.options().requires_grad(false))
                     .expand(prepared.parts().whole_sizes(part.name));
    }
    entry.tensor = stand_in;
  }
  return result;
}

void add_optimizer(CheckpointContents& contents, PreparedModel& prepared, const NamedOptimizer& optimizer,
                   const NamedTensors& model) {
  const NamedTensors& names = optimizer.parameters.empty() ? model : optimizer.parameters;
  OptimizerSnapshot snapshot = snapshot_optimizer(optimizer.name, *optimizer.optimizer, names);
  contents.optimizers[optimizer.name] = std::move(snapshot.description);
  for (const NamedTensor& part : snapshot.tensors) {
    TensorSource source = source_of(part);
    const std::string parameter = parameter_of(optimizer.name, part.name);
    if (!parameter.empty() && prepared.parts().optimizes_parts()) {
      source.sizes = prepared.parts().whole_sizes(parameter);
      source.make = [&parts = prepared.parts(), parameter, tensor = part.tensor] {
        return parts.assemble(parameter, tensor);
      };
    }
    contents.optimizer_tensors.push_back(std::move(source));
  }
}

void save_together(const Context& context, const std::filesystem::path& root, std::int64_t step,
                   CheckpointContents contents, int keep) {
  std::optional<Procession> sources;
  run_agreed(context, [&] { sources.emplace(contents); });
  std::exception_ptr failure;
  try {
    if (context.rank() == 0) save_checkpoint(root, step, contents, keep);
  } catch (...) {
    if (sources->broken()) throw;
    failure = std::current_exception();
  }
  // The others', or what a full disk has left over.
  sources->make_rest();
  run_agreed(context, [&] {
    if (failure) std::rethrow_exception(failure);
  });
}

}  // namespace rondo
