#include "apps/train/train_command_line.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "apps/common/command_line.h"
#include "apps/common/help_format.h"
#include "apps/train/help.h"
#include "apps/train/run_folder.h"
#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/models/model_options.h"
#include "rondo/options/config_file.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// Flags that exclude each other: one on the command line overrides the other in a file.
const std::map<std::string, std::string> kAlternatives = {{"batch-size", "global-batch-size"},
                                                          {"global-batch-size", "batch-size"},
                                                          {"epochs", "steps"},
                                                          {"steps", "epochs"},
                                                          {"data-weights", "data"}};

// The options of a configuration file, and those that the command line overrides.
struct FileValues {
  OptionValues values;
  std::map<std::string, OptionOrigin> origins;
  std::vector<std::string> replaced;  // "--lr 0.1 replaces lr = 0.2 of run.toml:3"
};

// Reads the file's options that `given` does not override. Throws UsageError for a name that is no option of
// a training.
FileValues values_of_file(const fs::path& path, const FlagSet& flags, const OptionValues& given) {
  const auto takes_object = [&](const std::string& name) {
    const Flag* const flag = flags.find(name);
    return flag != nullptr && flag->option.takes_object;
  };
  FileValues file;
  for (const FileOption& option : read_config_file(path, takes_object)) {
    const std::string place = str(path.string(), ":", option.line);
    std::string text;
    try {
      text = option_text(flags.require(option.name).option, option.value);
    } catch (const UsageError& error) {
      throw UsageError(str(place, ": ", printable(option.key), ": ", error.what()));
    }
    if (text.empty()) continue;
    const auto alternative = kAlternatives.find(option.name);
    auto replaces = given.find(option.name);
    if (replaces == given.end() && alternative != kAlternatives.end())
      replaces = given.find(alternative->second);
    if (replaces == given.end()) {
      file.values[option.name] = text;
      file.origins[option.name] = {OptionSource::file, place};
    } else if (replaces->first != option.name || replaces->second != text) {
      const std::string flag = flags.require(replaces->first).option.shown_name();
      file.replaced.push_back(
          str(flag, " ", replaces->second, " replaces ", option.name, " = ", text, " of ", place));
    }
  }
  return file;
}

// Returns the configuration file that the command line overrides: `config`, else with --resume the run's own;
// empty if there is none.
std::string configuration_file(const std::string& config, const OptionValues& given, bool resumes) {
  if (!config.empty() || !resumes) return config;
  const auto run = given.find("run-dir");
  const fs::path own = (run == given.end() ? fs::path() : fs::path(run->second)) / "config.json";
  return fs::exists(own) ? own.string() : std::string();
}

void check_data(const std::string& data) {
  if (data.empty()) throw UsageError("--data is missing: the file or directory to train on");
  std::error_code error;
  const fs::file_status status = fs::status(data, error);
  if (!fs::exists(status)) throw UsageError(str("--data ", data, ": no such file or directory"));
  if (fs::is_regular_file(status) && fs::file_size(data, error) == 0)
    throw UsageError(str("--data ", data, ": the file is empty"));
}

// Throws UsageError for --resume of a folder that lacks the description of its training.
void check_described(const TrainFlags& flags) {
  if (!flags.data.empty() || !flags.resume || !flags.resume_from.empty() || flags.run_dir.empty()) return;
  throw UsageError(
      str("--resume: ", flags.run_dir,
          fs::exists(flags.run_dir) ? " holds no run to resume (no config.json)" : " does not exist",
          "; give the directory of a run, or start a training there with --data"));
}

// Sets flags that depend on others, and refuses contradictions.
void complete(const FlagSet& set, TrainFlags& flags, bool needs_data = true) {
  if (!flags.resume_from.empty() && !fs::exists(flags.resume_from))
    throw UsageError(str("--resume ", flags.resume_from, ": no such file or directory"));
  if (flags.sample && flags.dry_run)
    throw UsageError("--dry-run and --sample exclude each other: leave one of them out");
  if (flags.sample && flags.run_dir.empty())
    throw UsageError("--sample needs --run-dir, the directory of a run that trained a GPT");
  if (flags.sample && !fs::exists(flags.run_dir))
    throw UsageError(str("--run-dir ", flags.run_dir, ": no such file or directory"));
  if (!flags.sample) {
    if (needs_data) {
      check_described(flags);
      for (const std::string& data : data_paths(flags)) check_data(data);
    }
    if (flags.resume && flags.resume_from.empty() && flags.run_dir.empty())
      throw UsageError("--resume needs --run-dir, or the path of a checkpoint");
    if (flags.batch_size && flags.global_batch_size) {
      throw UsageError(str("--batch-size ", *flags.batch_size, " (per replica) and --global-batch-size ",
                           *flags.global_batch_size, " exclude each other"));
    }
    if (!flags.batch_size && !flags.global_batch_size) flags.batch_size = 32;
  }
  set.refuse_without_effect(flags);
  flags.model = absolute_model_name(flags.model);  // the run may be read from another folder
  flags.engine = set.engine(flags);
  set.ask_strategy(flags);
  flags.configuration = set.configuration(flags);
  flags.changed_options = set.changed_options(flags.configuration);
}

// Reads the file's options that `given` does not override. With `notes` records the overridden ones.
void read_file(const fs::path& path, const FlagSet& set, const OptionValues& given, TrainFlags& flags,
               bool notes) {
  FileValues file = values_of_file(path, set, given);
  set.drop_options_of_others(given, file.values);
  flags.origins = std::move(file.origins);
  std::erase_if(flags.origins, [&](const auto& origin) { return !file.values.contains(origin.first); });
  set.read(file.values, flags);
  if (notes) flags.notes = std::move(file.replaced);
}

// Parses NAME=VALUE of --set. Throws UsageError for other text, and for an unknown option.
std::pair<std::string, std::string> read_setting(const FlagSet& set, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(str("--set ", printable(text), ": expected NAME=VALUE, as in --set segment-size=1MiB"));
  std::string name = text.substr(0, equals);
  std::replace(name.begin(), name.end(), '_', '-');
  try {
    set.require(name);
  } catch (const UsageError& error) {
    throw UsageError(str("--set ", printable(text), ": ", error.what()));
  }
  return {name, text.substr(equals + 1)};
}

// Refuses an option without a flag that was given as a flag.
[[noreturn]] void refuse_flag(const Option& option, const std::string& value) {
  const std::string text = option.kind == OptionKind::toggle ? "true" : value;
  throw UsageError(str("--", option.name, " is no flag: set it with --set ", option.name, "=",
                       printable(text), " or in a configuration file (--config)"));
}

std::string with_dashes(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  std::replace(argument.begin(), std::find(argument.begin(), argument.end(), '='), '_', '-');
  return argument;
}

}  // namespace

TrainFlags flags_of_run(const FlagSet& set, const std::string& run_dir, const OptionValues& given,
                        bool needs_data) {
  TrainFlags flags;
  read_file(fs::path(run_dir) / "config.json", set, given, flags, /*notes=*/false);
  set.read(given, flags);
  complete(set, flags, needs_data);
  return flags;
}

TrainCommandLine::TrainCommandLine(TrainChoices choices)
    : flags_(std::move(choices)), app_("", "rondo train") {
  app_.set_help_flag();
  for (const ProgramFlag& flag : kProgramFlags) {
    const std::string name = str("--", flag.name, std::string(flag.name) == "help" ? ",-h" : "");
    const std::string type = flag.type;
    if (type.empty()) {
      app_.add_flag(name);
    } else if (type.starts_with("[")) {
      app_.add_option(name)->expected(0, 1);
    } else if (type == "NAME=VALUE") {
      app_.add_option(name)->expected(1, 1 << 20)->allow_extra_args(false);
    } else {
      app_.add_option(name)->take_last();
    }
  }
  for (const Flag& flag : flags_.flags()) {
    const std::string name = "--" + flag.option.name;
    const bool is_switch = flag.option.kind == OptionKind::toggle && flag.option.type.empty();
    CLI::Option* const added = is_switch ? app_.add_flag(name) : app_.add_option(name);
    if (flag.option.kind == OptionKind::list) {
      added->expected(1, 1 << 20)->allow_extra_args(false);
    } else if (!is_switch) {
      added->take_last();
    }
    if (!flag.option.has_flag) added->group("");  // hidden: refuse_flag() says what to do instead
  }
}

// Returns a flag's value: the last one given; for a list all values.
std::string TrainCommandLine::value_of(const std::string& name) const {
  const std::vector<std::string> said = app_.get_option("--" + name)->results();
  const Flag* const flag = flags_.find(name);
  if (flag != nullptr && flag->option.kind == OptionKind::list) return join(said, ",");
  return said.empty() ? "" : said.back();
}

TrainFlags TrainCommandLine::understand() const {
  OptionValues given;
  std::map<std::string, OptionOrigin> origins;
  for (const std::string& text : app_.get_option("--set")->results()) {
    const auto [name, value] = read_setting(flags_, text);
    given[name] = value;
    origins[name] = {OptionSource::set};
  }
  for (const Flag& flag : flags_.flags()) {
    const std::string& name = flag.option.name;
    if (app_.count("--" + name) == 0) continue;
    given[name] = value_of(name);
    origins[name] = {OptionSource::flag};
    if (!flag.option.has_flag) refuse_flag(flag.option, given[name]);
  }
  // config.json keeps them, and JSON is UTF-8.
  for (const auto& [name, value] : given) {
    if (!is_utf8(value))
      throw UsageError(str("--", name, " '", printable(value), "' is not UTF-8; rename it"));
  }
  TrainFlags flags;
  flags.resume = app_.count("--resume") > 0 || given.contains("resume-intact");
  // CLI11 gives an option without its optional value the text "true" or nothing, depending on its version.
  if (const std::string path = flags.resume ? value_of("resume") : ""; path != "true")
    flags.resume_from = path;
  if (flags.resume && flags.resume_from.empty() && given.contains("run-dir"))
    refuse_foreign_folder(given.at("run-dir"));
  const std::string config = app_.count("--config") > 0 ? value_of("config") : "";
  if (const std::string file = configuration_file(config, given, flags.resume); !file.empty())
    read_file(file, flags_, given, flags, /*notes=*/!config.empty());
  for (auto& [name, origin] : origins) flags.origins[name] = std::move(origin);
  flags_.read(given, flags);
  flags.print_config = app_.count("--print-config") > 0;
  flags.dry_run = app_.count("--dry-run") > 0;
  complete(flags_, flags, /*needs_data=*/!flags.print_config);
  return flags;
}

int TrainCommandLine::run(int argc, const char* const* argv,
                          const std::function<int(const TrainFlags&)>& body) {
  std::vector<std::string> arguments = {argv[0]};
  for (int i = 1; i < argc; ++i) arguments.push_back(with_dashes(argv[i]));
  std::vector<const char*> words;
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  if (arguments.size() == 2 && arguments[1] == kHelpJsonFlag) {
    std::cout << help_to_json(full_help(flags_)).dump() << "\n";
    return end_with_streams(app_.get_name(), 0);
  }
  return run_command_line(app_, static_cast<int>(words.size()), words.data(), [&] {
    if (app_.count("--version") > 0) {
      std::cout << version_line() << "\n";
      return 0;
    }
    if (app_.count("--help") + app_.count("--help-all") == 0) {
      const TrainFlags flags = understand();
      if (!flags.print_config) return body(flags);
      std::cout << config_text(flags_, flags);
      return 0;
    }
    const std::string topic = app_.count("--help") > 0 ? value_of("help") : "";
    const bool all = app_.count("--help-all") > 0;
    if (all && app_.count("--json") > 0) {
      write_json(value_of("json"), help_as_json(flags_));
    } else {
      std::cout << help_text(all                                ? full_help(flags_)
                             : topic.empty() || topic == "true" ? short_help(flags_)
                                                                : help_about(flags_, topic));
    }
    return 0;
  });
}

}  // namespace rondo
