#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rondo/options/option_table.h"

namespace rondo {

// Form of a worker of a parameter server strategy.
enum class ServedWorker {
  none,     // the strategy has no servers
  process,  // one process with its own context
  group     // a group of ranks
};

// Description of one registry entry (a strategy, a model, a data kind, an engine) for command lines and help.
// Available without building the entry: the entry's folder provides it, and it does not need libtorch.
struct Declaration {
  std::string name;                              // "zero3"
  std::string summary;                           // one line without a full stop
  OptionTable options = OptionsOf<NoOptions>();  // the entry's options
  std::vector<std::string> aliases = {};         // alternative names
  bool installed_apart = false;                  // needs system software that a build may lack
  // For a strategy that trains on one process only: advice for several processes, such as "use ddp". Empty if
  // any number of processes may train.
  std::string on_several_processes = {};
  ServedWorker worker = ServedWorker::none;  // for strategies only
  // For a strategy with several replicas in a process: the number of replicas that the options request. Empty
  // means one.
  std::function<int(const OptionValues&)> replicas_per_process = {};
  // Whether the strategy follows a plan for the job. A program creates the plan first if the user gives none.
  bool is_planned = false;

  bool is_called(const std::string& text) const;  // whether `text` is its name or an alias
};

// Returns the entry with this name or alias; null if there is none.
const Declaration* find_declaration(const std::vector<Declaration>& entries, const std::string& name);

// Returns the worker form of the strategy with this name or alias; `none` for unknown names and for "auto".
ServedWorker worker_of(const std::vector<Declaration>& strategies, const std::string& name);

// Returns the sorted names of the entries that have an option of this name.
std::vector<std::string> takers_of(const std::vector<Declaration>& entries, const std::string& option);

// Throws UsageError naming the first option of `given` that differs from its default and that only entries
// other than `chosen` have. "--`flag` `shown`" in the message is how the user selected `chosen`.
void refuse_options_of_others(const std::vector<Declaration>& entries, const Declaration& chosen,
                              const std::string& flag, const std::string& shown, const OptionValues& given);

}  // namespace rondo
