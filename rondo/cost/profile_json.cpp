#include "rondo/cost/profile_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/cost/json_reader.h"
#include "rondo/cost/layers_json.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"

namespace rondo::cost {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "rondo-profile-2";
// Says nothing of layers, messages and exchanges.
constexpr const char* kFormatBefore = "rondo-profile-1";

// Bytes that may be below zero, but not by more than all that a unit's backward could have freed.
std::int64_t parse_workspace(const JsonReader& reader, const char* key, const UnitProfile& unit) {
  const std::int64_t bytes = reader.integer(key);
  const auto most = static_cast<std::int64_t>(unit.activation_bytes + unit.gradient_bytes);
  if (bytes < -most) {
    throw DataError(str(reader.path(key), ": ", bytes,
                        " would leave less than nothing of activation_bytes and gradient_bytes, ", most));
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

// What a profile of format 1 does not have.
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
      throw DataError(str(where, ".name: '", profile.units.back().name, "' is there twice"));
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
