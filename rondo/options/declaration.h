#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rondo/options/option_table.h"

namespace rondo {

// What one worker of parameter servers is, with a strategy that has them.
enum class ServedWorker {
  none,     // the strategy has no servers
  process,  // a process, in a context of its own
  group     // a group of ranks
};

// What command lines and help know of one entry of a registry (a strategy, a model, a kind of data, an
// engine) without building it. It comes from the entry's own folder, and needs no libtorch to run.
struct Declaration {
  std::string name;                              // "zero3"
  std::string summary;                           // one line without a full stop
  OptionTable options = OptionsOf<NoOptions>();  // of the entry
  std::vector<std::string> aliases = {};         // further names
  bool installed_apart = false;                  // needs something of the system that a build may lack
  // Of a strategy that trains on one process: what to do on several, as "use ddp". Empty where any number may
  // train.
  std::string on_several_processes = {};
  ServedWorker worker = ServedWorker::none;  // of a strategy
  // Of a strategy with several replicas in a process: how many these options ask for. Empty: one.
  std::function<int(const OptionValues&)> replicas_per_process = {};
  // Of a strategy that follows a plan for the job, which a program makes beforehand where it is given none.
  bool is_planned = false;

  bool is_called(const std::string& text) const;  // by its name or an alias
};

// The entry of this name or alias; null when there is none.
const Declaration* find_declaration(const std::vector<Declaration>& entries, const std::string& name);

// What a worker is with the strategy of this name or alias; none where there is no such entry, as for "auto".
ServedWorker worker_of(const std::vector<Declaration>& strategies, const std::string& name);

// The entries that have an option of this name.
std::vector<std::string> takers_of(const std::vector<Declaration>& entries, const std::string& option);

// Throws UsageError naming the first of `given` that says something else than its default and that `chosen`
// lacks, though others of `entries` take it; "--`flag` `shown`" is how `chosen` was chosen.
void refuse_options_of_others(const std::vector<Declaration>& entries, const Declaration& chosen,
                              const std::string& flag, const std::string& shown, const OptionValues& given);

}  // namespace rondo
