#include "rondo/env/settings.h"

#include <array>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::env {

const char* to_string(Field field) {
  switch (field) {
    case Field::rank:
      return "rank";
    case Field::world_size:
      return "world_size";
    case Field::local_rank:
      return "local_rank";
    case Field::local_world_size:
      return "local_world_size";
    case Field::node_rank:
      return "node_rank";
    case Field::num_nodes:
      return "num_nodes";
    case Field::role:
      return "role";
    case Field::role_rank:
      return "role_rank";
    case Field::role_world_size:
      return "role_world_size";
    case Field::master_addr:
      return "master_addr";
    case Field::master_port:
      return "master_port";
    case Field::run_id:
      return "run_id";
    case Field::restart_count:
      return "restart_count";
    case Field::num_ps:
      return "num_ps";
  }
  return "?";
}

std::optional<int> integer_variable(const EnvironmentMap& environment, std::string_view variable) {
  const auto text = lookup(environment, variable);
  if (!text) return std::nullopt;
  const long long value = parse_integer(trim(*text), str("environment variable ", variable));
  if (value < 0 || value > std::numeric_limits<int>::max()) {
    throw UsageError(str("environment variable ", variable, "=", *text, " is out of range: expected 0 to ",
                         std::numeric_limits<int>::max()));
  }
  return static_cast<int>(value);
}

void Settings::set(Field field, std::string value, std::string variable) {
  settings_[field] = Setting{std::move(value), std::move(variable), false};
}

void Settings::set(Field field, long long value, std::string variable) {
  set(field, std::to_string(value), std::move(variable));
}

void Settings::set_default(Field field, std::string value, std::string variable) {
  settings_[field] = Setting{std::move(value), std::move(variable), true};
}

void Settings::take_integer(Field field, const EnvironmentMap& environment, std::string_view variable) {
  if (const auto value = integer_variable(environment, variable)) set(field, *value, std::string(variable));
}

void Settings::take_text(Field field, const EnvironmentMap& environment, std::string_view variable) {
  if (auto text = lookup(environment, variable)) set(field, std::move(*text), std::string(variable));
}

const Setting* Settings::find(Field field) const {
  const auto found = settings_.find(field);
  return found == settings_.end() ? nullptr : &found->second;
}

std::optional<int> Settings::integer(Field field) const {
  const Setting* setting = find(field);
  if (setting == nullptr) return std::nullopt;
  return static_cast<int>(parse_integer(setting->value, setting->variable));
}

std::span<const Source> sources() {
  static const std::array table = {
      pet_source,   torchrun_source,   open_mpi_source,  pmi_source,
      slurm_source, kubernetes_source, tpu_slice_source, tf_config_source,
  };
  return table;
}

}  // namespace rondo::env
