#include "rondo/cost/profile_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/cost/json_reader.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"

namespace rondo::cost {

namespace {

using Json = nlohmann::ordered_json;

int parse_count(const JsonReader& reader, const char* key, std::uint64_t least) {
  const std::uint64_t value = reader.whole(key);
  if (value < least || value > 1'000'000)
    throw DataError(str(reader.path(key), ": ", value, " is out of range"));
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
    if (same > 1) throw DataError(str(at, ".name: '", layers.back().name, "' appears twice"));
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

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "rondo-profile-2";
// Has no layers and no send_recv and all_to_all curves.
constexpr const char* kFormatBefore = "rondo-profile-1";

// Parses bytes that may be negative, but not below minus all that a unit's backward could have freed.
std::int64_t parse_workspace(const JsonReader& reader, const char* key, const UnitProfile& unit) {
  const std::int64_t bytes = reader.integer(key);
  const auto most = static_cast<std::int64_t>(unit.activation_bytes + unit.gradient_bytes);
  if (bytes < -most) {
    throw DataError(str(reader.path(key), ": ", bytes,
                        " would free more than activation_bytes plus gradient_bytes, ", most));
  }
  return bytes;
}

UnitProfile parse_unit(const Json& json, const std::string& where) {
  const JsonReader reader(
      json, where,
      {"name", "forward_s", "backward_s", "recompute_s", "optimizer_s", "parameter_bytes", "gradient_bytes",
       "optimizer_bytes", "activation_bytes", "checkpointed_activation_bytes", "forward_workspace_bytes",
       "backward_workspace_bytes", "checkpointed_backward_workspace_bytes", "strategies"});
  UnitProfile unit;
  unit.name = reader.text("name");
  unit.forward_s = reader.number("forward_s");
  unit.backward_s = reader.number("backward_s");
  unit.recompute_s = reader.number_or("recompute_s", unit.forward_s);
  unit.optimizer_s = reader.number_or("optimizer_s", 0);
  unit.parameter_bytes = reader.whole("parameter_bytes");
  unit.gradient_bytes = reader.whole("gradient_bytes");
  unit.optimizer_bytes = reader.whole("optimizer_bytes");
  unit.activation_bytes = reader.whole("activation_bytes");
  unit.checkpointed_activation_bytes =
      reader.whole_or("checkpointed_activation_bytes", unit.activation_bytes);
  unit.forward_workspace_bytes = reader.whole_or("forward_workspace_bytes", 0);
  if (reader.has("backward_workspace_bytes"))
    unit.backward_workspace_bytes = parse_workspace(reader, "backward_workspace_bytes", unit);
  if (const char* key = "checkpointed_backward_workspace_bytes"; reader.has(key))
    unit.checkpointed_backward_workspace_bytes = parse_workspace(reader, key, unit);
  if (unit.checkpointed_activation_bytes > unit.activation_bytes) {
    throw DataError(str(reader.path("checkpointed_activation_bytes"), ": ",
                        unit.checkpointed_activation_bytes, " exceeds activation_bytes ",
                        unit.activation_bytes));
  }
  if (reader.has("strategies")) {
    for (const Json& strategy : reader.list("strategies")) {
      if (!strategy.is_string()) throw DataError(str(reader.path("strategies"), ": expected strings"));
      try {
        unit.strategies.push_back(parse_strategy(strategy.get<std::string>(), reader.path("strategies")));
      } catch (const UsageError& e) {
        throw DataError(e.what());
      }
    }
    if (unit.strategies.empty()) throw DataError(str(reader.path("strategies"), ": is empty"));
  }
  return unit;
}

CostCurve parse_curve(const Json& json, const std::string& where) {
  if (!json.is_array())
    throw DataError(str(where, ": expected a list of [bytes, seconds], found ", json.type_name()));
  std::vector<CostPoint> points;
  for (const Json& pair : json) {
    const std::string at = str(where, "[", points.size(), "]");
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() || !pair[1].is_number())
      throw DataError(str(at, ": expected [bytes, seconds], found ", pair.dump()));
    const double bytes = pair[0].get<double>();
    if (!(bytes >= 0) || bytes > 9e15 || bytes != std::floor(bytes))
      throw DataError(str(at, ": ", pair[0].dump(), " is not a whole number of bytes"));
    points.push_back({static_cast<std::uint64_t>(bytes), pair[1].get<double>()});
  }
  return {std::move(points), where};
}

// Curves that a profile of format 1 does not have.
std::vector<std::pair<const char*, CostCurve*>> optional_curves(Link& link) {
  return {{"send_recv", &link.send_recv}, {"all_to_all", &link.all_to_all}};
}

Link parse_link(const Json& json, const std::string& where) {
  const JsonReader reader(json, where,
                          {"ranks", "collectives", "alpha_s", "beta_s_per_byte", "saturating_bytes",
                           "contention", "parameters_in_place"});
  Link link;
  const std::uint64_t ranks = reader.whole("ranks");
  if (ranks < 2 || ranks > 1'000'000)
    throw DataError(str(reader.path("ranks"), ": ", ranks, " is not between 2 and 1000000"));
  link.ranks = static_cast<int>(ranks);
  const std::string curves = reader.path("collectives");
  const JsonReader collectives(reader.at("collectives"), curves,
                               {"all_reduce", "reduce_scatter", "all_gather", "send_recv", "all_to_all"});
  for (const Collective collective : kCollectives) {
    const std::string key(name(collective));
    link.curves[static_cast<std::size_t>(collective)] =
        parse_curve(collectives.at(key.c_str()), str(curves, ".", key));
  }
  for (const auto& [key, curve] : optional_curves(link)) {
    if (collectives.has(key)) *curve = parse_curve(collectives.at(key), str(curves, ".", key));
  }
  fit(link);
  link.alpha_s = reader.number_or("alpha_s", link.alpha_s);
  link.beta_s_per_byte = reader.number_or("beta_s_per_byte", link.beta_s_per_byte);
  link.saturating_bytes = reader.whole_or("saturating_bytes", link.saturating_bytes);
  if (reader.has("parameters_in_place")) link.parameters_in_place = reader.boolean("parameters_in_place");
  link.contention = reader.number_or("contention", 0);
  if (link.contention >= 1)
    throw DataError(str(reader.path("contention"), ": ", link.contention, " is not below 1"));
  return link;
}

Json to_json(const CostCurve& curve) {
  Json points = Json::array();
  for (const CostPoint& p : curve.points()) points.push_back({p.bytes, p.seconds});
  return points;
}

Json to_json(Link link) {
  Json curves = Json::object();
  for (const Collective collective : kCollectives)
    curves[std::string(name(collective))] = to_json(link.curve(collective));
  for (const auto& [key, curve] : optional_curves(link)) {
    if (!curve->points().empty()) curves[key] = to_json(*curve);
  }
  Json json{{"ranks", link.ranks},
            {"collectives", std::move(curves)},
            {"alpha_s", link.alpha_s},
            {"beta_s_per_byte", link.beta_s_per_byte},
            {"saturating_bytes", link.saturating_bytes},
            {"contention", link.contention}};
  if (link.parameters_in_place) json["parameters_in_place"] = true;
  return json;
}

Json to_json(const UnitProfile& unit) {
  Json json{{"name", unit.name},
            {"forward_s", unit.forward_s},
            {"backward_s", unit.backward_s},
            {"recompute_s", unit.recompute_s},
            {"optimizer_s", unit.optimizer_s},
            {"parameter_bytes", unit.parameter_bytes},
            {"gradient_bytes", unit.gradient_bytes},
            {"optimizer_bytes", unit.optimizer_bytes},
            {"activation_bytes", unit.activation_bytes},
            {"checkpointed_activation_bytes", unit.checkpointed_activation_bytes},
            {"forward_workspace_bytes", unit.forward_workspace_bytes},
            {"backward_workspace_bytes", unit.backward_workspace_bytes}};
  if (unit.checkpointed_backward_workspace_bytes)
    json["checkpointed_backward_workspace_bytes"] = *unit.checkpointed_backward_workspace_bytes;
  for (const Strategy strategy : unit.strategies) json["strategies"].push_back(name(strategy));
  return json;
}

}  // namespace

Profile parse_profile(const Json& json, const std::string& what) {
  if (json.is_object() && !json.contains("format") && json.contains("step_ms")) {
    throw DataError(str(
        what, " is a plan, which `rondo plan` wrote; a profile is expected, which `rondo profile` writes"));
  }
  const JsonReader reader(json, what,
                          {"format", "model", "made_for", "batch_size", "spread", "overhead_s", "base_bytes",
                           "engine_bytes", "engine_rank_bytes", "units", "layers", "link"});
  if (const std::string format = reader.text("format"); format != kFormat && format != kFormatBefore)
    throw DataError(
        str(reader.path("format"), ": '", format, "' is not '", kFormat, "' or '", kFormatBefore, "'"));
  Profile profile;
  profile.model = reader.text("model");
  profile.batch_size = reader.whole_or("batch_size", 1);
  if (profile.batch_size == 0) throw DataError(str(reader.path("batch_size"), ": 0 is not positive"));
  profile.spread = reader.number_or("spread", 0);
  profile.overhead_s = reader.number_or("overhead_s", 0);
  profile.base_bytes = reader.whole_or("base_bytes", 0);
  profile.engine_bytes = reader.whole_or("engine_bytes", 0);
  profile.engine_rank_bytes = reader.whole_or("engine_rank_bytes", 0);
  if (profile.engine_bytes > profile.base_bytes)
    throw DataError(str(reader.path("engine_bytes"), ": ", profile.engine_bytes, " exceeds base_bytes ",
                        profile.base_bytes));
  if (reader.has("made_for")) profile.made_for = reader.text("made_for");
  std::set<std::string> names;
  for (const Json& unit : reader.list("units")) {
    const std::string where = str(reader.path("units"), "[", profile.units.size(), "]");
    profile.units.push_back(parse_unit(unit, where));
    if (!names.insert(profile.units.back().name).second)
      throw DataError(str(where, ".name: '", profile.units.back().name, "' appears twice"));
  }
  if (profile.units.empty()) throw DataError(str(reader.path("units"), ": is empty"));
  if (reader.has("layers"))
    profile.layers = parse_layers(reader.at("layers"), reader.path("layers"), {names.begin(), names.end()});
  profile.link = parse_link(reader.at("link"), reader.path("link"));
  return profile;
}

Profile read_profile(const std::filesystem::path& path) {
  return parse_profile(read_json_file(path), path.string());
}

Json to_json(const Profile& profile) {
  Json units = Json::array();
  for (const UnitProfile& unit : profile.units) units.push_back(to_json(unit));
  Json json{{"format", kFormat}, {"model", profile.model}};
  if (!profile.made_for.empty()) json["made_for"] = profile.made_for;
  json["batch_size"] = profile.batch_size;
  if (profile.spread > 0) json["spread"] = profile.spread;
  if (profile.overhead_s > 0) json["overhead_s"] = profile.overhead_s;
  json["base_bytes"] = profile.base_bytes;
  if (profile.engine_bytes > 0) {
    json["engine_bytes"] = profile.engine_bytes;
    json["engine_rank_bytes"] = profile.engine_rank_bytes;
  }
  json["units"] = std::move(units);
  if (!profile.layers.empty()) json["layers"] = to_json(profile.layers);
  json["link"] = to_json(profile.link);
  return json;
}

std::string profile_hash(const Profile& profile) { return checksum_hex(as_bytes(to_json(profile).dump())); }

}  // namespace rondo::cost
