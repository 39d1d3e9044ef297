#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rondo/env/environment.h"
#include "rondo/env/field.h"

namespace rondo::env {

// One statement of one source about one field.
struct Setting {
  std::string value;
  std::string variable;
  // A guess that only fills a gap, and so cannot contradict anybody: Slurm's first host as the master
  // address.
  bool default_value = false;
};

// What one source says. Numbers are checked when they are taken from a variable: not negative, not above
// 2^31-1.
class Settings {
 public:
  void set(Field field, std::string value, std::string variable);
  void set(Field field, long long value, std::string variable);
  void set_default(Field field, std::string value, std::string variable);

  // Takes the value of `variable` when it is set; throws UsageError naming variable and value when it is not
  // a number of the allowed range.
  void take_integer(Field field, const EnvironmentMap& environment, std::string_view variable);
  void take_text(Field field, const EnvironmentMap& environment, std::string_view variable);

  const Setting* find(Field field) const;
  // The value as a number, when there is one.
  std::optional<int> integer(Field field) const;
  bool empty() const { return settings_.empty(); }
  void put(Field field, Setting setting) { settings_[field] = std::move(setting); }

  auto begin() const { return settings_.begin(); }
  auto end() const { return settings_.end(); }

 private:
  std::map<Field, Setting> settings_;
};

// The value of `variable` as a number that is not negative; empty when not set; UsageError when malformed.
std::optional<int> integer_variable(const EnvironmentMap& environment, std::string_view variable);

// A way of being told who one is: a launcher's or a scheduler's set of environment variables.
struct Source {
  const char* name;
  // What the environment says by this source. `higher` is what sources of higher precedence have said.
  Settings (*read)(const EnvironmentMap&, const Settings& higher);
  // Whether this source's launcher started this very process, so that the sources below describe the launcher
  // and not the process. Null: cannot be known.
  bool (*started_this_process)(const EnvironmentMap&);
};

// The sources, highest precedence first. To add one: a file in sources/ and a line in the table in
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
