#include "rondo/simulate/mesh_step.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::simulate {
namespace {

std::uint64_t share_of(std::uint64_t bytes, double factor) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * factor));
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 1; }

// Returns the seconds of `messages` messages with `bytes` bytes in total among the ranks that divide a layer.
// Overlap with the compute of attention is not subtracted.
double messages_s(const MeshLinks& links, const cost::LayerPart& part, int messages, double bytes) {
  if (messages == 0) return 0;
  const double each = bytes / messages;
  if (part.dimension == "context") return messages * links.context.message_seconds(each);
  if (part.dimension == "expert") return messages * links.expert.exchange_seconds(each, part.ranks);
  return messages * links.tensor.seconds(cost::Collective::all_reduce, each, part.ranks);
}

const cost::LayerPart& part_of(const cost::Profile& profile, const cost::LayerProfile& layer,
                               const MeshShape& shape) {
  const std::pair<const char*, int> dimensions[] = {
      {"tensor", shape.tensor}, {"context", shape.context}, {"expert", shape.expert}};
  std::vector<std::string> divided;
  const cost::LayerPart* part = &layer.parts.front();
  for (const auto& [dimension, ranks] : dimensions) {
    if (ranks == 1) continue;
    divided.push_back(str(dimension, "=", ranks));
    part = layer.part(dimension, ranks);
  }
  if (part != nullptr && divided.size() < 2) return *part;
  throw UsageError(str("the profile of ", profile.model, " does not know layer '", layer.name,
                       "' divided along ", join(divided, ",")));
}

// Returns the gradient bytes to exclude for a layer with spread experts. Experts are averaged over fewer
// ranks, and a ring's bytes are proportional to (ranks - 1) / ranks.
std::uint64_t own_gradients(std::uint64_t gradients, const cost::LayerPart& part, const MeshShape& shape) {
  if (part.expert_parameter_bytes == 0) return 0;
  const auto around = [](int ranks) { return 1 - 1.0 / ranks; };
  const double experts =
      ratio(static_cast<double>(part.expert_parameter_bytes), static_cast<double>(part.parameter_bytes));
  return share_of(gradients, experts * (1 - around(shape.data * shape.context) / around(shape.copies())));
}

const cost::UnitProfile& unit_of(const cost::Profile& profile, const cost::LayerProfile& layer) {
  return *std::find_if(profile.units.begin(), profile.units.end(),
                       [&](const cost::UnitProfile& unit) { return unit.name == layer.unit; });
}

}  // namespace

std::uint64_t engine_bytes_of_group(const cost::Profile& profile, int ranks) {
  const std::int64_t bytes =
      static_cast<std::int64_t>(profile.engine_bytes) +
      (ranks - profile.link.ranks) * static_cast<std::int64_t>(profile.engine_rank_bytes);
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, bytes));
}

std::uint64_t engine_bytes_of_groups(const cost::Profile& profile, const MeshShape& shape) {
  const int ranks = shape.ranks(), copies = shape.copies();
  std::uint64_t bytes = shape.data == ranks ? 0 : engine_bytes_of_group(profile, shape.data);
  for (const int size : {shape.pipeline, shape.context, shape.expert, shape.tensor}) {
    if (size > 1 && size < ranks) bytes += engine_bytes_of_group(profile, size);
  }
  if (copies > shape.data) bytes += engine_bytes_of_group(profile, copies);
  if (shape.expert == 1) return bytes;
  // The strategy's mesh (a dimension of all ranks shares the world's group), and its three groups for tokens.
  const int replicas = shape.data * shape.context;
  std::vector<int> sizes = {replicas, copies, shape.expert, replicas};
  if (shape.expert < copies) sizes.push_back(shape.expert);
  if (shape.context > 1) sizes.push_back(shape.data * shape.expert);
  for (const int size : sizes) bytes += engine_bytes_of_group(profile, size);
  return bytes;
}

MeshLinks same_links(const cost::Link& link) { return {link, link, link, link, link}; }

std::vector<cost::LayerProfile> layers_of(const cost::Profile& profile) {
  if (!profile.layers.empty()) return profile.layers;
  std::vector<cost::LayerProfile> layers;
  for (const cost::UnitProfile& unit : profile.units) {
    const auto workspace =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, unit.backward_workspace_bytes));
    cost::LayerPart part;
    cost::LayerPasses& passes = part.passes.emplace_back();
    passes.samples = profile.batch_size;
    passes.forward_s = unit.forward_s;
    passes.backward_s = unit.backward_s;
    passes.backward_input_s = passes.backward_weight_s = unit.backward_s / 2;
    passes.activation_bytes = passes.deferred_bytes = unit.activation_bytes;
    passes.forward_workspace_bytes = unit.forward_workspace_bytes;
    passes.backward_workspace_bytes = passes.input_workspace_bytes = workspace;
    part.parameter_bytes = unit.parameter_bytes;
    layers.push_back({.name = unit.name,
                      .unit = unit.name,
                      .output_bytes = unit.checkpointed_activation_bytes,
                      .checkpointed_activation_bytes = unit.checkpointed_activation_bytes,
                      .parts = {std::move(part)}});
  }
  return layers;
}

std::vector<LayerCost> layer_costs(const cost::Profile& profile, const MeshShape& shape, double samples,
                                   const MeshLinks& links) {
  // Bytes are for whole samples: uneven micro-batches differ by one sample, and the first ones are larger.
  const double batch = static_cast<double>(profile.batch_size);
  const double factor = samples / batch, whole = std::ceil(samples - 1e-9) / batch;
  std::vector<LayerCost> costs;
  for (const cost::LayerProfile& layer : layers_of(profile)) {
    const cost::LayerPart& part = part_of(profile, layer, shape);
    const cost::UnitProfile& unit = unit_of(profile, layer);
    const double forward = messages_s(links, part, part.forward_messages,
                                      factor * static_cast<double>(part.forward_message_bytes));
    const double backward = messages_s(links, part, part.backward_messages,
                                       factor * static_cast<double>(part.backward_message_bytes));
    const double of_unit = unit.parameter_bytes == 0 ? 0
                                                     : static_cast<double>(part.parameter_bytes) /
                                                           static_cast<double>(unit.parameter_bytes);
    LayerCost& cost = costs.emplace_back();
    static_cast<cost::LayerPasses&>(cost) = part.at(whole * batch);
    const cost::LayerPasses times = part.at(samples);
    cost.name = layer.name;
    cost.unit = layer.unit;
    cost.forward_s = times.forward_s + forward;
    cost.backward_s = times.backward_s + backward;
    cost.backward_input_s = times.backward_input_s + backward;
    cost.backward_weight_s = times.backward_weight_s;
    cost.optimizer_s = unit.optimizer_s * of_unit;
    cost.parameter_bytes = part.parameter_bytes;
    cost.gradient_bytes = share_of(unit.gradient_bytes, of_unit);
    cost.own_gradient_bytes = own_gradients(cost.gradient_bytes, part, shape);
    cost.optimizer_bytes = share_of(unit.optimizer_bytes, of_unit);
    cost.checkpointed_activation_bytes =
        std::min(share_of(layer.checkpointed_activation_bytes, whole / shape.context), cost.activation_bytes);
    cost.output_bytes = share_of(layer.output_bytes, whole / shape.context);
  }
  return costs;
}

cost::Profile part_of_profile(const cost::Profile& profile, const MeshShape& shape, double samples,
                              const MeshLinks& links) {
  cost::Profile result = cost::scaled_to_batch(profile, samples / static_cast<double>(profile.batch_size));
  if (shape.tensor * shape.context * shape.expert == 1) return result;
  // Units were measured in one pass of the whole model, layers separately. Only the layers' proportions and
  // their communication are used.
  struct Sums {
    double forward = 0, whole_forward = 0, backward = 0, whole_backward = 0, forward_message = 0,
           backward_message = 0;
    double parameters = 0, whole_parameters = 0, activations = 0, whole_activations = 0;
    cost::LayerPart state = {};  // parameter bytes only
  };
  std::map<std::string, Sums> by_unit;
  const double factor = samples / static_cast<double>(profile.batch_size);
  for (const cost::LayerProfile& layer : layers_of(profile)) {
    const cost::LayerPart& part = part_of(profile, layer, shape);
    const cost::LayerPart& all = layer.parts.front();
    const cost::LayerPasses times = part.at(samples), whole = all.at(samples);
    Sums& sums = by_unit[layer.unit];
    sums.forward += times.forward_s;
    sums.whole_forward += whole.forward_s;
    sums.backward += times.backward_s;
    sums.whole_backward += whole.backward_s;
    sums.forward_message += messages_s(links, part, part.forward_messages,
                                       factor * static_cast<double>(part.forward_message_bytes));
    sums.backward_message += messages_s(links, part, part.backward_messages,
                                        factor * static_cast<double>(part.backward_message_bytes));
    sums.parameters += static_cast<double>(part.parameter_bytes);
    sums.state.parameter_bytes += part.parameter_bytes;
    sums.state.expert_parameter_bytes += part.expert_parameter_bytes;
    sums.whole_parameters += static_cast<double>(all.parameter_bytes);
    sums.activations += static_cast<double>(times.activation_bytes);
    sums.whole_activations += static_cast<double>(whole.activation_bytes);
  }
  for (cost::UnitProfile& unit : result.units) {
    const auto found = by_unit.find(unit.name);
    if (found == by_unit.end())
      throw UsageError(str("the profile of ", profile.model, " has no layer of unit '", unit.name, "'"));
    const Sums& sums = found->second;
    const double parameters = ratio(sums.parameters, sums.whole_parameters);
    const double activations = ratio(sums.activations, sums.whole_activations);
    unit.forward_s = unit.forward_s * ratio(sums.forward, sums.whole_forward) + sums.forward_message;
    unit.recompute_s = unit.recompute_s * ratio(sums.forward, sums.whole_forward) + sums.forward_message;
    unit.backward_s = unit.backward_s * ratio(sums.backward, sums.whole_backward) + sums.backward_message;
    unit.optimizer_s *= parameters;
    for (std::uint64_t* bytes : {&unit.parameter_bytes, &unit.gradient_bytes, &unit.optimizer_bytes})
      *bytes = share_of(*bytes, parameters);
    unit.own_gradient_bytes = own_gradients(unit.gradient_bytes, sums.state, shape);
    if (shape.expert > 1) unit.strategies = {cost::Strategy::ddp};
    unit.activation_bytes = share_of(unit.activation_bytes, activations);
    unit.checkpointed_activation_bytes =
        std::min(share_of(unit.checkpointed_activation_bytes, 1.0 / shape.context), unit.activation_bytes);
    // Most of the workspace belongs to the divided products.
    unit.forward_workspace_bytes = share_of(unit.forward_workspace_bytes, activations);
    const auto least = -static_cast<std::int64_t>(unit.activation_bytes + unit.gradient_bytes);
    const auto scaled_workspace = [&](std::int64_t bytes) {
      return std::max(least, static_cast<std::int64_t>(std::llround(static_cast<double>(bytes) *
                                                                    (bytes > 0 ? activations : parameters))));
    };
    unit.backward_workspace_bytes = scaled_workspace(unit.backward_workspace_bytes);
    if (auto& bytes = unit.checkpointed_backward_workspace_bytes) bytes = scaled_workspace(*bytes);
  }
  result.layers.clear();
  return result;
}

}  // namespace rondo::simulate
