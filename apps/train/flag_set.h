#pragma once

#include <string>
#include <vector>

#include "apps/train/flags.h"

namespace rondo {

// An option of `rondo train`: the program's own, or one that entries of one choice declare.
struct Flag {
  Option option;
  std::string choice = {};  // "strategy", "model", "data-kind" or "backend"; empty: the program's own
  std::vector<std::string> takers = {};  // names of the entries that declare the option, sorted
};

// Every option of a training, made from what the program and the choices declare.
class FlagSet {
 public:
  // Throws Error when two entries declare one flag in different ways.
  explicit FlagSet(TrainChoices choices);

  const TrainChoices& choices() const { return choices_; }
  const std::vector<Flag>& flags() const { return flags_; }
  const Flag* find(const std::string& name) const;

  // Reads values into `flags`. Options in brackets of --backend are read as flags. Throws UsageError naming
  // the flag, the value, the allowed values, and the line of a file by `flags.origins`.
  void read(const OptionValues& given, TrainFlags& flags) const;
  // Returns a flag's value as text; empty if it has none.
  std::string value_of(const Flag& flag, const TrainFlags& flags) const;

  // Removes options of strategies, models, kinds of data and engines that `given` does not select from
  // `values`, the options of a file.
  void drop_options_of_others(const OptionValues& given, OptionValues& values) const;
  // Throws UsageError naming the first flag that differs from its default and has no effect with the other
  // flags, such as beta1 with --optimizer sgd or --codec with --strategy zero1.
  void refuse_without_effect(const TrainFlags& flags) const;

  // Returns TrainFlags::engine. Throws UsageError for an unknown engine in an option.
  std::string engine(const TrainFlags& flags) const;

  // Sets TrainFlags::replicas and is_planned from the chosen strategy's declaration.
  void ask_strategy(TrainFlags& flags) const;

  // Returns the option of this name. Throws UsageError with the nearest name if there is none.
  const Flag& require(const std::string& name) const;
  // Returns TrainFlags::configuration.
  nlohmann::ordered_json configuration(const TrainFlags& flags) const;
  // Returns TrainFlags::changed_options for a configuration.
  std::vector<std::string> changed_options(const nlohmann::ordered_json& configuration) const;

 private:
  // A part of refuse_without_effect(): refuses one option that another leaves without effect.
  void refuse_unneeded(const Flag& flag, const TrainFlags& flags) const;

  TrainChoices choices_;
  std::vector<Flag> flags_;
};

}  // namespace rondo
