#include "rondo/profile/layer_profile.h"

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "rondo/backend/group.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"
#include "rondo/memory/tracker.h"
#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/nn/layers.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/pipeline/stage.h"

namespace rondo {
namespace {

// An engine without peers. It reduces nothing, assumes that every other rank has the same numbers, and counts
// the bytes to send. It allows measuring one rank's compute in a single process; values are wrong.
class CountingBackend final : public c10d::Backend {
 public:
  explicit CountingBackend(int ranks) : Backend(0, ranks) {}

  const std::string getBackendName() const override { return "counting"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_sizes,
                                               std::vector<std::int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;

  int messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }
  void forget() { messages_ = 0, bytes_ = 0; }

 private:
  int messages_ = 0;
  std::uint64_t bytes_ = 0;
};

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

c10::intrusive_ptr<c10d::Work> CountingBackend::allreduce(std::vector<at::Tensor>& tensors,
                                                          const c10d::AllreduceOptions&) {
  ++messages_;
  for (const at::Tensor& tensor : tensors) bytes_ += tensor.nbytes();
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                          std::vector<at::Tensor>& inputs,
                                                          const c10d::AllgatherOptions&) {
  ++messages_;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    bytes_ += inputs[i].nbytes();
    for (at::Tensor& output : outputs[i]) output.copy_(inputs[i]);
  }
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                              std::vector<std::int64_t>&,
                                                              std::vector<std::int64_t>&,
                                                              const c10d::AllToAllOptions&) {
  ++messages_;
  bytes_ += input.nbytes();
  output.zero_();
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::send(std::vector<at::Tensor>& tensors, int, int) {
  ++messages_;
  for (const at::Tensor& tensor : tensors) bytes_ += tensor.nbytes();
  return c10::make_intrusive<DoneWork>();
}

c10::intrusive_ptr<c10d::Work> CountingBackend::recv(std::vector<at::Tensor>& tensors, int, int) {
  for (at::Tensor& tensor : tensors) tensor.zero_();
  return c10::make_intrusive<DoneWork>();
}

// Returns a group over that engine with this process as its first rank.
Group counting_group(const c10::intrusive_ptr<CountingBackend>& backend) {
  std::vector<int> ranks(static_cast<std::size_t>(backend->getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Group("counting", std::move(ranks), 0, c10::intrusive_ptr<c10d::Backend>(backend), {});
}

using Times = std::vector<double>;

// Measurements of one layer: times of all passes, bytes of the last pass.
struct LayerFigures {
  Times forward_s, backward_s, input_s, weight_s;
  cost::LayerPasses bytes;
  std::uint64_t output_bytes = 0;
  int forward_messages = 0, backward_messages = 0;
  std::uint64_t forward_message_bytes = 0, backward_message_bytes = 0;
};

std::uint64_t bytes_above(std::uint64_t bytes, std::uint64_t other) {
  return bytes > other ? bytes - other : 0;
}

template <class Action>
double seconds_of(const Action& action) {
  const TimePoint begin = Clock::now();
  action();
  return seconds(Clock::now() - begin);
}

// Measures the layers of one model, whole or one rank's part of it.
class LayerMeter {
 public:
  // `counted` is the engine of a divided model; null for a whole one.
  LayerMeter(const Model& model, LossFunction loss, c10::intrusive_ptr<CountingBackend> counted)
      : layers_(layers_of(model)), loss_(std::move(loss)), counted_(std::move(counted)) {}

  const std::vector<ModelLayer>& layers() const { return layers_; }

  // Returns measurements by layer, after one warm-up pass.
  std::vector<LayerFigures> measure(const Batch& batch, int passes) {
    std::vector<LayerFigures> figures(layers_.size());
    for (int i = 0; i <= passes; ++i) {
      Tensors inputs = batch.inputs;
      for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        const bool is_last = layer + 1 == layers_.size();
        LayerFigures unused;
        inputs = pass(layer, inputs, is_last ? &batch : nullptr, i == 0 ? unused : figures[layer]);
      }
    }
    return figures;
  }

 private:
  // Runs forward and backward twice: first with split, then with unsplit backward. Returns the next layer's
  // inputs. `batch` is for the loss of the last layer; null for other layers.
  Tensors pass(std::size_t number, const Tensors& inputs, const Batch* batch, LayerFigures& figures) {
    Stage whole({layers_[number]}, false), split({layers_[number]}, true);
    MemoryTracker& memory = replica_memory_tracker();
    cost::LayerPasses& bytes = figures.bytes;
    Tensors outputs;
    for (Stage* const stage : {&split, &whole}) {
      outputs.clear();
      const std::uint64_t before = memory.total();
      memory.reset_peak();
      forget_messages();
      const double forward_s = seconds_of([&] {
        outputs = stage->forward(0, inputs);
        if (batch == nullptr) return;
        stage->replace_outputs(0, {loss_(outputs, batch->targets, batch->samples).mean});
      });
      figures.forward_messages = messages(figures.forward_message_bytes);
      figures.output_bytes = 0;
      Tensors given;
      std::vector<bool> takes_gradient;
      for (at::Tensor& output : outputs) {
        figures.output_bytes += output.nbytes();
        takes_gradient.push_back(output.requires_grad());
        output = output.detach();
      }
      if (batch != nullptr) outputs.clear();  // the loss replaces them
      bytes.activation_bytes = bytes_above(memory.total(), before);
      bytes.forward_workspace_bytes = bytes_above(memory.peak_total(), before + bytes.activation_bytes);
      for (std::size_t i = 0; i < outputs.size() && batch == nullptr; ++i) {
        if (takes_gradient[i]) given.push_back(at::ones_like(outputs[i]));
      }
      memory.reset_peak();
      forget_messages();
      const std::uint64_t kept = before + bytes.activation_bytes;
      if (stage == &whole) {
        figures.forward_s.push_back(forward_s);
        figures.backward_s.push_back(seconds_of([&] { stage->backward(0, given); }));
        bytes.backward_workspace_bytes = bytes_above(memory.peak_total(), kept);
        figures.backward_messages = messages(figures.backward_message_bytes);
      } else {
        figures.input_s.push_back(seconds_of([&] { stage->backward_input(0, given); }));
        bytes.input_workspace_bytes = bytes_above(memory.peak_total(), kept);
        given.clear();
        bytes.deferred_bytes = bytes_above(memory.total(), before);
        memory.reset_peak();
        figures.weight_s.push_back(seconds_of([&] { stage->backward_weight(0); }));
        bytes.weight_workspace_bytes = bytes_above(memory.peak_total(), before + bytes.deferred_bytes);
      }
      // The next layer's inputs require gradients, as between two stages.
      for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].requires_grad_(takes_gradient[i]);
    }
    return outputs;
  }

  void forget_messages() {
    if (counted_) counted_->forget();
  }
  int messages(std::uint64_t& bytes) const {
    bytes = counted_ ? counted_->bytes() : 0;
    return counted_ ? counted_->messages() : 0;
  }

  std::vector<ModelLayer> layers_;
  LossFunction loss_;
  c10::intrusive_ptr<CountingBackend> counted_;
};

cost::LayerPasses passes_of(const LayerFigures& figures, std::int64_t samples) {
  cost::LayerPasses passes = figures.bytes;
  passes.samples = static_cast<std::uint64_t>(samples);
  passes.forward_s = median(figures.forward_s);
  passes.backward_s = median(figures.backward_s);
  passes.backward_input_s = median(figures.input_s);
  passes.backward_weight_s = median(figures.weight_s);
  return passes;
}

Batch first_samples(Batch batch, std::int64_t samples) {
  for (Tensors* const tensors : {&batch.inputs, &batch.targets}) {
    for (at::Tensor& tensor : *tensors) tensor = tensor.narrow(0, 0, samples);
  }
  batch.samples = samples;
  return batch;
}

// Measures one part of every layer, for the batch and a quarter of it.
std::vector<cost::LayerPart> measure_parts(LayerMeter& meter, int ranks, const Batch& batch, int passes,
                                           std::vector<std::uint64_t>* output_bytes) {
  std::vector<cost::LayerPart> parts(meter.layers().size());
  const std::int64_t all = batch.samples;
  std::vector<std::int64_t> batches = {all};
  if (all > 1) batches.insert(batches.begin(), std::max<std::int64_t>(1, all / 4));
  for (const std::int64_t samples : batches) {
    const auto figures = meter.measure(first_samples(batch, samples), passes);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].passes.push_back(passes_of(figures[i], samples));
      if (samples != all) continue;
      parts[i].ranks = ranks;
      for (const at::Tensor& tensor : meter.layers()[i].tensors) parts[i].parameter_bytes += tensor.nbytes();
      parts[i].forward_messages = figures[i].forward_messages;
      parts[i].forward_message_bytes = figures[i].forward_message_bytes;
      parts[i].backward_messages = figures[i].backward_messages;
      parts[i].backward_message_bytes = figures[i].backward_message_bytes;
      if (output_bytes != nullptr) output_bytes->push_back(figures[i].output_bytes);
    }
  }
  return parts;
}

// Reduces the model and its batch to the first rank's part along the dimension, and adapts the loss to
// divided outputs. Returns false if the model cannot be divided so.
bool divide(torch::nn::Module& module, const std::string& dimension, const Group& group, Batch& batch,
            LossFunction& loss) {
  if (dimension == "tensor") {
    const auto* const parallel = dynamic_cast<const ParallelModel*>(&module);
    if (parallel == nullptr) return false;
    if (parallelize(module, parallel->parallel_rules(false), group).divided_outputs())
      loss = loss.of_divided_classes(group);
  } else if (dimension == "context") {
    auto* const parallel = dynamic_cast<ContextParallelModel*>(&module);
    if (parallel == nullptr) return false;
    for (Tensors* const tensors : {&batch.inputs, &batch.targets}) {
      for (at::Tensor& tensor : *tensors) {
        if (tensor.dim() < 2) return false;
        tensor = own_sequence(tensor, 1, group);
      }
    }
    parallel->divide_context(group);
  } else {
    const std::vector<MixtureOfExpertsImpl*> experts = expert_layers(module);
    for (MixtureOfExpertsImpl* const each : experts) each->spread({.experts = group, .all = group});
    return !experts.empty();
  }
  return true;
}

// Returns the bytes of a layer's experts.
std::uint64_t bytes_of_experts(const ModelLayer& layer, const torch::nn::Module& module) {
  std::uint64_t bytes = 0;
  for (MixtureOfExpertsImpl* const experts : expert_layers(module)) {
    for (const at::Tensor& parameter : experts->experts().parameters()) {
      for (const at::Tensor& tensor : layer.tensors)
        bytes += tensor.is_same(parameter) ? parameter.nbytes() : 0;
    }
  }
  return bytes;
}

}  // namespace

std::vector<cost::LayerProfile> profile_layers(const ModelFactory& make_model, const Batch& batch,
                                               const LossFunction& loss,
                                               const std::vector<cost::UnitProfile>& units,
                                               const LayerProfileOptions& options) {
  const Model model = make_model();
  model.module->eval();  // running statistics do not change, and there is no randomness
  std::vector<cost::LayerProfile> layers;
  std::vector<cost::LayerPart> parts;
  std::vector<std::uint64_t> output_bytes;
  try {
    LayerMeter meter(model, loss, {});
    parts = measure_parts(meter, 1, batch, options.passes, &output_bytes);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      cost::LayerProfile& layer = layers.emplace_back();
      layer.name = meter.layers()[i].name;
      layer.unit = kRootUnit;
      layer.output_bytes = output_bytes[i];
      const std::uint64_t activations = parts[i].passes.back().activation_bytes;
      layer.checkpointed_activation_bytes = activations;
      for (const cost::UnitProfile& unit : units) {
        if (unit.name != layer.name) continue;
        layer.unit = unit.name;
        layer.checkpointed_activation_bytes = std::min(unit.checkpointed_activation_bytes, activations);
      }
      layer.parts.push_back(std::move(parts[i]));
    }
  } catch (const UsageError&) {
    return {};  // not a sequence of layers
  }
  const bool has_root = std::any_of(units.begin(), units.end(),
                                    [](const cost::UnitProfile& unit) { return unit.name == kRootUnit; });
  const bool is_in_units = std::all_of(layers.begin(), layers.end(), [&](const cost::LayerProfile& layer) {
    return has_root || layer.unit != kRootUnit;
  });
  if (!is_in_units) return {};
  for (const char* const dimension : {"tensor", "context", "expert"}) {
    for (const int ranks : options.divided_ranks) {
      const auto engine = c10::make_intrusive<CountingBackend>(ranks);
      const Model divided = make_model();
      divided.module->eval();
      Batch own_batch = batch;
      LossFunction own_loss = loss;
      try {
        if (!divide(*divided.module, dimension, counting_group(engine), own_batch, own_loss)) break;
        LayerMeter meter(divided, std::move(own_loss), engine);
        parts = measure_parts(meter, ranks, own_batch, options.passes, nullptr);
        for (std::size_t i = 0; i < parts.size(); ++i) {
          parts[i].dimension = dimension;
          if (parts[i].dimension == "expert")
            parts[i].expert_parameter_bytes = bytes_of_experts(meter.layers()[i], *divided.module);
        }
      } catch (const UsageError&) {
        continue;  // heads, widths, lengths or experts that these ranks do not divide
      }
      for (std::size_t i = 0; i < layers.size(); ++i) layers[i].parts.push_back(std::move(parts[i]));
    }
  }
  return layers;
}

void fit_to_units(cost::Profile& profile) {
  double of_units = 0, of_layers = 0;
  for (const cost::UnitProfile& unit : profile.units) of_units += unit.forward_s + unit.backward_s;
  for (const cost::LayerProfile& layer : profile.layers) {
    const cost::LayerPasses times = layer.parts.front().at(static_cast<double>(profile.batch_size));
    of_layers += times.forward_s + times.backward_s;
  }
  if (!(of_units > 0 && of_layers > 0)) return;
  for (cost::LayerProfile& layer : profile.layers) {
    for (cost::LayerPart& part : layer.parts) {
      for (cost::LayerPasses& passes : part.passes) {
        for (double* time :
             {&passes.forward_s, &passes.backward_s, &passes.backward_input_s, &passes.backward_weight_s})
          *time *= of_units / of_layers;
      }
    }
  }
}

}  // namespace rondo
