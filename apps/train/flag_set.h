#pragma once

#include <string>
#include <vector>

#include "apps/train/flags.h"

namespace rondo {

// An option of `rondo train`: the program's own, or one that entries of one choice declare.
struct Flag {
  Option option;
  std::string choice = {};  // "strategy", "model", "data-kind" or "backend"; empty: the program's own
  std::vector<std::string> takers = {};  // names of the entries that declare it, sorted
};

// Every option of a training, made from what the program and the choices declare.
class FlagSet {
 public:
  // Throws Error when two entries declare one flag in different ways.
  explicit FlagSet(TrainChoices choices);

  const TrainChoices& choices() const { return choices_; }
  const std::vector<Flag>& flags() const { return flags_; }
  const Flag* find(const std::string& name) const;

  // Reads values into `flags`. What --backend says in brackets is said by the flags of these options. Throws
  // UsageError naming the flag, the value, what is allowed, and the line of a file by `flags.origins`.
  void read(const OptionValues& given, TrainFlags& flags) const;
  // What a flag says, as text; empty when it has no value.
  std::string value_of(const Flag& flag, const TrainFlags& flags) const;

  // Drops of `values`, what a file says, the options of another strategy (model, kind of data, engine) than
  // the one that `given` chooses.
  void drop_options_of_others(const OptionValues& given, OptionValues& values) const;
  // Throws UsageError naming the first flag that was given another value than its default and that the other
  // flags leave without any effect, as beta1 with --optimizer sgd or --codec with --strategy zero1.
  void refuse_without_effect(const TrainFlags& flags) const;

  // TrainFlags::engine. Throws UsageError for an engine in an option that is none.
  std::string engine(const TrainFlags& flags) const;

  // TrainFlags::replicas and is_planned: what the chosen strategy declares.
  void ask_strategy(TrainFlags& flags) const;

  // The option of this name. Throws UsageError with the nearest name when there is none.
  const Flag& require(const std::string& name) const;
  // TrainFlags::configuration.
  nlohmann::ordered_json configuration(const TrainFlags& flags) const;

 private:
  // A part of refuse_without_effect(): refuses one option that another leaves without effect.
  void refuse_unneeded(const Flag& flag, const TrainFlags& flags) const;

  TrainChoices choices_;
  std::vector<Flag> flags_;
};

}  // namespace rondo
