#include "apps/train/train_command_line.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "apps/common/command_line.h"
#include "apps/train/help.h"
#include "apps/train/run_folder.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/models/model_options.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// Flags that say the same thing in two ways: one on the command line makes the other in a file void.
const std::map<std::string, std::string> kAlternatives = {{"batch-size", "global-batch-size"},
                                                          {"global-batch-size", "batch-size"},
                                                          {"epochs", "steps"},
                                                          {"steps", "epochs"},
                                                          {"data-weights", "data"}};

std::string flag_text(const nlohmann::json& value) {
  if (!value.is_array()) return value.is_string() ? value.get<std::string>() : value.dump();
  std::vector<std::string> items;
  for (const auto& item : value) items.push_back(flag_text(item));
  return join(items, ",");
}

// The file's entries that no flag of `given` overrides. Throws UsageError for what is no flag of a training.
OptionValues values_of_file(const std::string& path, const FlagSet& flags, const OptionValues& given) {
  nlohmann::json document;
  try {
    document = read_json_file(path);
  } catch (const DataError& error) {
    throw UsageError(str("--config: expected a JSON object of flags: ", error.what()));
  }
  if (!document.is_object()) throw UsageError(str("--config ", path, ": expected a JSON object of flags"));
  OptionValues values;
  for (const auto& [key, value] : document.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (flags.find(name) == nullptr)
      throw UsageError(str("--config ", path, ": '", key, "' is not a flag of rondo train"));
    const bool is_empty = value.is_null() || (value.is_array() && value.empty()) ||
                          (value.is_string() && value.get_ref<const std::string&>().empty());
    if (is_empty || given.contains(name)) continue;
    const auto alternative = kAlternatives.find(name);
    if (alternative != kAlternatives.end() && given.contains(alternative->second)) continue;
    values[name] = flag_text(value);
  }
  return values;
}

// The configuration file that stands under the command line; empty when there is none.
std::string configuration_file(const OptionValues& given, bool resumes) {
  const auto value = [&](const char* flag) {
    const auto found = given.find(flag);
    return found == given.end() ? std::string() : found->second;
  };
  if (std::string file = value("config"); !file.empty() || !resumes) return file;
  const fs::path own = fs::path(value("run-dir")) / "config.json";
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

// Throws UsageError for --resume of a folder that could have described the training, and does not.
void check_described(const TrainFlags& flags) {
  if (!flags.data.empty() || !flags.resume || !flags.resume_from.empty() || flags.run_dir.empty()) return;
  throw UsageError(
      str("--resume: ", flags.run_dir,
          fs::exists(flags.run_dir) ? " holds no run that could go on (no config.json)" : " does not exist",
          "; give the directory of a run, or begin one there with the flags of the training, --data "
          "first"));
}

// Fills in what one flag says about another, and refuses contradictions.
void complete(const FlagSet& set, TrainFlags& flags, bool needs_data = true) {
  if (!flags.resume_from.empty() && !fs::exists(flags.resume_from))
    throw UsageError(str("--resume ", flags.resume_from, ": no such file or directory"));
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
}

// Reads the file's flags that `given` does not override.
void read_file(const std::string& file, const FlagSet& set, const OptionValues& given, TrainFlags& flags) {
  OptionValues values = values_of_file(file, set, given);
  set.drop_options_of_others(given, values);
  try {
    set.read(values, flags);
  } catch (const UsageError& error) {
    throw UsageError(str("--config ", file, ": ", error.what()));
  }
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
  read_file(fs::path(run_dir) / "config.json", set, given, flags);
  set.read(given, flags);
  complete(set, flags, needs_data);
  return flags;
}

TrainCommandLine::TrainCommandLine(TrainChoices choices)
    : flags_(std::move(choices)), app_("", "rondo train") {
  app_.set_help_flag();
  app_.add_option("--help,-h")->expected(0, 1);
  app_.add_flag("--help-all");
  app_.add_option("--resume")->expected(0, 1);
  for (const Flag& flag : flags_.flags()) {
    if (flag.option.kind == OptionKind::toggle) {
      app_.add_flag("--" + flag.option.name);
    } else if (flag.option.kind == OptionKind::list) {
      app_.add_option("--" + flag.option.name)->expected(1, 1 << 20)->allow_extra_args(false);
    } else {
      app_.add_option("--" + flag.option.name)->take_last();
    }
  }
}

// What stands behind a flag: the last that was said, of a list all of it.
std::string TrainCommandLine::value_of(const std::string& name) const {
  const std::vector<std::string> said = app_.get_option("--" + name)->results();
  const Flag* const flag = flags_.find(name);
  if (flag != nullptr && flag->option.kind == OptionKind::list) return join(said, ",");
  return said.empty() ? "" : said.back();
}

TrainFlags TrainCommandLine::understand() const {
  OptionValues given;
  for (const Flag& flag : flags_.flags()) {
    const std::string& name = flag.option.name;
    if (app_.count("--" + name) == 0) continue;
    given[name] = value_of(name);
    // config.json keeps it, and JSON is UTF-8.
    if (!is_utf8(given[name]))
      throw UsageError(str("--", name, " '", printable(given[name]), "' is not UTF-8; name it anew"));
  }
  TrainFlags flags;
  flags.resume = app_.count("--resume") > 0 || given.contains("resume-intact");
  // CLI11 gives an option without its optional value the text "true" or nothing, depending on its version.
  if (const std::string path = flags.resume ? value_of("resume") : ""; path != "true")
    flags.resume_from = path;
  if (flags.resume && flags.resume_from.empty() && given.contains("run-dir"))
    refuse_foreign_folder(given.at("run-dir"));
  if (const std::string file = configuration_file(given, flags.resume); !file.empty())
    read_file(file, flags_, given, flags);
  flags_.read(given, flags);
  complete(flags_, flags);
  return flags;
}

int TrainCommandLine::run(int argc, const char* const* argv,
                          const std::function<int(const TrainFlags&)>& body) {
  std::vector<std::string> arguments = {argv[0]};
  for (int i = 1; i < argc; ++i) arguments.push_back(with_dashes(argv[i]));
  std::vector<const char*> words;
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  return run_command_line(app_, static_cast<int>(words.size()), words.data(), [&] {
    if (app_.count("--help") + app_.count("--help-all") == 0) return body(understand());
    const std::string topic = app_.count("--help") > 0 ? value_of("help") : "";
    const bool all = app_.count("--help-all") > 0;
    if (all && app_.count("--json") > 0) {
      write_json(value_of("json"), help_as_json(flags_));
    } else {
      std::cout << (all                                ? full_help(flags_)
                    : topic.empty() || topic == "true" ? short_help(flags_)
                                                       : help_about(flags_, topic));
    }
    return 0;
  });
}

}  // namespace rondo
