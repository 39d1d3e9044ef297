#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rondo/env/environment.h"
#include "rondo/env/field.h"

namespace rondo::env {

// Value of one field from one source.
struct Setting {
  std::string value;
  std::string variable;
  // Whether the value is a guess that only fills a gap and cannot contradict another source, such as Slurm's
  // first host as the master address.
  bool default_value = false;
};

// Fields that one source provides. Numbers are checked when they are read from a variable: 0 to 2^31-1.
class Settings {
 public:
  void set(Field field, std::string value, std::string variable);
  void set(Field field, long long value, std::string variable);
  void set_default(Field field, std::string value, std::string variable);

  // Sets the field from `variable` if that is set. Throws UsageError naming variable and value if it is not a
  // number in the allowed range.
  void take_integer(Field field, const EnvironmentMap& environment, std::string_view variable);
  void take_text(Field field, const EnvironmentMap& environment, std::string_view variable);

  const Setting* find(Field field) const;
  // Returns the value as a number; empty if the field is not set.
  std::optional<int> integer(Field field) const;
  bool empty() const { return settings_.empty(); }
  void put(Field field, Setting setting) { settings_[field] = std::move(setting); }

  auto begin() const { return settings_.begin(); }
  auto end() const { return settings_.end(); }

 private:
  std::map<Field, Setting> settings_;
};

// Returns the value of `variable` as a non-negative number; empty if it is not set. Throws UsageError if it
// is malformed.
std::optional<int> integer_variable(const EnvironmentMap& environment, std::string_view variable);

// A set of environment variables, from one launcher or scheduler, that identifies the process.
struct Source {
  const char* name;
  // Reads this source's fields from the environment. `higher` holds the fields from sources of higher
  // precedence.
  Settings (*read)(const EnvironmentMap&, const Settings& higher);
  // Returns whether this source's launcher started this very process, so that lower sources describe the
  // launcher instead. Null if that cannot be determined.
  bool (*started_this_process)(const EnvironmentMap&);
};

// Returns the sources, highest precedence first. To add one: a file in sources/ and a line in the table in
// settings.cpp.
std::span<const Source> sources();

extern const Source pet_source;
extern const Source torchrun_source;
extern const Source open_mpi_source;
extern const Source pmi_source;
extern const Source slurm_source;
extern const Source kubernetes_source;
extern const Source tpu_slice_source;
extern const Source tf_config_source;

}  // namespace rondo::env
