#include "rondo/cost/layers_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/cost/json_reader.h"

namespace rondo::cost {
namespace {

using Json = nlohmann::ordered_json;

int parse_count(const JsonReader& reader, const char* key, std::uint64_t least) {
  const std::uint64_t value = reader.whole(key);
  if (value < least || value > 1'000'000) throw DataError(str(reader.path(key), ": ", value, " cannot be"));
  return static_cast<int>(value);
}

LayerPasses parse_passes(const Json& json, const std::string& where) {
  const JsonReader reader(json, where,
                          {"samples", "forward_s", "backward_s", "backward_input_s", "backward_weight_s",
                           "activation_bytes", "deferred_bytes", "forward_workspace_bytes",
                           "backward_workspace_bytes", "input_workspace_bytes", "weight_workspace_bytes"});
  LayerPasses passes;
  passes.samples = static_cast<std::uint64_t>(parse_count(reader, "samples", 1));
  passes.forward_s = reader.number("forward_s");
  passes.backward_s = reader.number("backward_s");
  passes.backward_input_s = reader.number_or("backward_input_s", passes.backward_s / 2);
  passes.backward_weight_s =
      reader.number_or("backward_weight_s", std::max(0.0, passes.backward_s - passes.backward_input_s));
  passes.activation_bytes = reader.whole("activation_bytes");
  passes.deferred_bytes = reader.whole_or("deferred_bytes", passes.activation_bytes);
  passes.forward_workspace_bytes = reader.whole_or("forward_workspace_bytes", 0);
  passes.backward_workspace_bytes = reader.whole_or("backward_workspace_bytes", 0);
  passes.input_workspace_bytes = reader.whole_or("input_workspace_bytes", passes.backward_workspace_bytes);
  passes.weight_workspace_bytes = reader.whole_or("weight_workspace_bytes", 0);
  return passes;
}

LayerPart parse_part(const Json& json, const std::string& where) {
  const JsonReader reader(
      json, where,
      {"dimension", "ranks", "passes", "parameter_bytes", "expert_parameter_bytes", "forward_messages",
       "forward_message_bytes", "backward_messages", "backward_message_bytes"});
  LayerPart part;
  if (reader.has("dimension")) part.dimension = reader.text("dimension");
  if (part.dimension != "tensor" && part.dimension != "context" && part.dimension != "expert")
    throw DataError(str(reader.path("dimension"), ": '", part.dimension,
                        "' divides no layer; expected tensor, context or expert"));
  part.ranks = parse_count(reader, "ranks", 1);
  for (const Json& passes : reader.list("passes")) {
    const std::string at = str(reader.path("passes"), "[", part.passes.size(), "]");
    part.passes.push_back(parse_passes(passes, at));
    if (part.passes.size() > 1 && part.passes.back().samples <= part.passes[part.passes.size() - 2].samples)
      throw DataError(str(at, ".samples: must ascend"));
  }
  if (part.passes.empty()) throw DataError(str(reader.path("passes"), ": is empty"));
  part.parameter_bytes = reader.whole("parameter_bytes");
  part.expert_parameter_bytes = reader.whole_or("expert_parameter_bytes", 0);
  if (part.expert_parameter_bytes > part.parameter_bytes)
    throw DataError(str(reader.path("expert_parameter_bytes"), ": ", part.expert_parameter_bytes,
                        " are more than parameter_bytes, ", part.parameter_bytes));
  if (reader.has("forward_messages")) part.forward_messages = parse_count(reader, "forward_messages", 0);
  part.forward_message_bytes = reader.whole_or("forward_message_bytes", 0);
  if (reader.has("backward_messages")) part.backward_messages = parse_count(reader, "backward_messages", 0);
  part.backward_message_bytes = reader.whole_or("backward_message_bytes", 0);
  return part;
}

LayerProfile parse_layer(const Json& json, const std::string& where, const std::vector<std::string>& units) {
  const JsonReader reader(json, where,
                          {"name", "unit", "output_bytes", "checkpointed_activation_bytes", "parts"});
  LayerProfile layer;
  layer.name = reader.text("name");
  layer.unit = reader.text("unit");
  if (std::find(units.begin(), units.end(), layer.unit) == units.end())
    throw DataError(str(reader.path("unit"), ": the profile has no unit '", layer.unit, "'"));
  layer.output_bytes = reader.whole("output_bytes");
  for (const Json& part : reader.list("parts")) {
    const std::string at = str(reader.path("parts"), "[", layer.parts.size(), "]");
    layer.parts.push_back(parse_part(part, at));
    const int ranks = layer.parts.back().ranks;
    const LayerPart* const before = layer.parts.size() > 1 ? &layer.parts[layer.parts.size() - 2] : nullptr;
    const bool goes_on = before != nullptr && before->dimension == layer.parts.back().dimension;
    if (before == nullptr ? ranks != 1 : ranks <= (goes_on ? before->ranks : 1)) {
      throw DataError(
          str(at, ".ranks: ", ranks, "; the first part is of 1 rank, and ranks ascend along a dimension"));
    }
  }
  if (layer.parts.empty()) throw DataError(str(reader.path("parts"), ": is empty"));
  layer.checkpointed_activation_bytes =
      reader.whole_or("checkpointed_activation_bytes", layer.parts.front().passes.back().activation_bytes);
  return layer;
}

Json passes_to_json(const LayerPasses& passes) {
  return {{"samples", passes.samples},
          {"forward_s", passes.forward_s},
          {"backward_s", passes.backward_s},
          {"backward_input_s", passes.backward_input_s},
          {"backward_weight_s", passes.backward_weight_s},
          {"activation_bytes", passes.activation_bytes},
          {"deferred_bytes", passes.deferred_bytes},
          {"forward_workspace_bytes", passes.forward_workspace_bytes},
          {"backward_workspace_bytes", passes.backward_workspace_bytes},
          {"input_workspace_bytes", passes.input_workspace_bytes},
          {"weight_workspace_bytes", passes.weight_workspace_bytes}};
}

Json part_to_json(const LayerPart& part) {
  Json json{{"dimension", part.dimension}, {"ranks", part.ranks}};
  for (const LayerPasses& passes : part.passes) json["passes"].push_back(passes_to_json(passes));
  json["parameter_bytes"] = part.parameter_bytes;
  if (part.expert_parameter_bytes > 0) json["expert_parameter_bytes"] = part.expert_parameter_bytes;
  if (part.forward_messages + part.backward_messages > 0) {
    json["forward_messages"] = part.forward_messages;
    json["forward_message_bytes"] = part.forward_message_bytes;
    json["backward_messages"] = part.backward_messages;
    json["backward_message_bytes"] = part.backward_message_bytes;
  }
  return json;
}

}  // namespace

std::vector<LayerProfile> parse_layers(const Json& json, const std::string& where,
                                       const std::vector<std::string>& units) {
  if (!json.is_array()) throw DataError(str(where, ": expected a list, found ", json.type_name()));
  std::vector<LayerProfile> layers;
  for (const Json& each : json) {
    const std::string at = str(where, "[", layers.size(), "]");
    layers.push_back(parse_layer(each, at, units));
    const auto same = std::count_if(layers.begin(), layers.end(), [&](const LayerProfile& layer) {
      return layer.name == layers.back().name;
    });
    if (same > 1) throw DataError(str(at, ".name: '", layers.back().name, "' is there twice"));
  }
  return layers;
}

Json to_json(const std::vector<LayerProfile>& layers) {
  Json json = Json::array();
  for (const LayerProfile& layer : layers) {
    Json parts = Json::array();
    for (const LayerPart& part : layer.parts) parts.push_back(part_to_json(part));
    json.push_back({{"name", layer.name},
                    {"unit", layer.unit},
                    {"output_bytes", layer.output_bytes},
                    {"checkpointed_activation_bytes", layer.checkpointed_activation_bytes},
                    {"parts", std::move(parts)}});
  }
  return json;
}

}  // namespace rondo::cost
