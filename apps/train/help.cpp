#include "apps/train/help.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr const char* kExamples = R"(Examples:
  rondo train --data texts/ --nproc-per-node 2                      # a small GPT on all text below texts/, 2 processes
  rondo train --data texts/ --model gpt-25m --steps 2000 --lr 6e-4 --lr-schedule cosine --warmup-steps 100 --max-grad-norm 1
  rondo train --data mnist/ --model convnet --epochs 3 --optimizer sgd --lr 0.05 --momentum 0.9
  rondo train --data texts/ --model gpt-25m --activation-checkpointing all --memory-limit 2GiB
  rondo train --model bert --task classify --data reviews.tsv --from-pretrained bert-base/ --freeze embeddings --lr 2e-5
  rondo train --data texts/ --model gpt-25m --nproc-per-node 2 --strategy planned --memory-limit 500MiB
  rondo train --run-dir runs/a --resume                             # go on where the run stopped, with its settings
  rondo train --config runs/a/config.json --lr 3e-4                 # the same training with another learning rate
  rondo train --run-dir runs/a --sample "The "                      # text from the newest checkpoint
  rondo train --data texts/ --model gpt-25m --precision O1            # bfloat16 autocast; --precision O2 --amp-dtype float16 ...
  rondo run -n 2 rondo train --data texts/                          # under a launcher: every process is a rank

TERM or INT saves a checkpoint after the current step and ends with exit code 3; --resume continues.)";
constexpr const char* kWhat = "Trains a built-in model on your data, on one process or many.";
constexpr const char* kWithoutFlag = "Without a flag (--set NAME=VALUE, configuration files)";

struct Topic {
  const char* title;
  const char* key;   // in JSON
  const char* flag;  // flag that chooses one of the entries
  std::vector<Declaration> TrainChoices::*entries;
};
constexpr Topic kTopics[] = {{"Strategies", "strategies", "strategy", &TrainChoices::strategies},
                             {"Models", "models", "model", &TrainChoices::models},
                             {"Kinds of data", "data_kinds", "data-kind", &TrainChoices::data_kinds},
                             {"Engines", "engines", "backend", &TrainChoices::engines},
                             {"Log targets", "log_targets", "log-to", &TrainChoices::log_targets}};

std::vector<std::string> names_in(const std::vector<Declaration>& entries) {
  std::vector<std::string> names;
  for (const Declaration& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the condition under which a flag has an effect: a value of the choosing flag, or of another flag.
std::optional<OptionNeed> audience(const Flag& flag) {
  if (!flag.choice.empty()) return OptionNeed{flag.choice, flag.takers};
  return flag.option.needs;
}

// Returns the condition under which a flag has an effect: "strategy ddp", "every model but mlp".
std::string audience_text(const FlagSet& flags, const Flag& flag) {
  const std::optional<OptionNeed> need = audience(flag);
  if (!need) return {};
  if (need->values.empty()) return str("with ", flags.find(need->option)->option.shown_name());
  for (const Choice& choice : kChoices) {
    if (need->option != choice.flag) continue;
    std::vector<std::string> others = names_in(flags.choices().*choice.entries);
    std::erase_if(others, [&](const std::string& name) {
      return std::find(need->values.begin(), need->values.end(), name) != need->values.end();
    });
    if (!others.empty() && others.size() < need->values.size())
      return str("every ", need->option, " but ", join(others, ", "));
  }
  return str(need->option, " ", join(need->values, ", "));
}

enum class Extent { common, all, one_thing };

// Adds the flags that exist only on the command line: the common ones or all.
void add_program_flags(std::vector<HelpGroup>& groups, Extent extent) {
  for (const ProgramFlag& flag : kProgramFlags) {
    if (extent == Extent::one_thing || (extent == Extent::common && !flag.is_common)) continue;
    add_help_entry(groups, flag.group, {.name = str("--", flag.name), .type = flag.type, .text = flag.help});
  }
}

// Returns help of the options for which `wanted` is true. Options of entries name the entries; options
// without a flag are in a separate group.
template <class Wanted>
HelpPage page_of(const FlagSet& flags, const std::string& description, const std::string& footer,
                 Extent extent, const Wanted& wanted) {
  std::vector<HelpGroup> groups;
  std::vector<const Flag*> without_flag;
  const auto add = [&](const Flag& flag, const std::string& group) {
    const Option& option = flag.option;
    const std::string who = extent == Extent::one_thing ? "" : audience_text(flags, flag);
    add_help_entry(groups, group,
                   {.name = (option.has_flag ? "--" : "") + option.name,
                    .type = option.type,
                    .default_text = option.default_text.value_or(""),
                    .text = who.empty() ? option.help : str(option.help, " [", who, "]")});
  };
  for (const Flag& flag : flags.flags()) {
    if (!wanted(flag)) continue;
    if (flag.option.has_flag) {
      add(flag, flag.option.group);
    } else {
      without_flag.push_back(&flag);
    }
  }
  add_program_flags(groups, extent);
  for (const Flag* const flag : without_flag) add(*flag, kWithoutFlag);
  return {.name = "rondo train",
          .summary = description,
          .usage = "rondo train [OPTIONS]",
          .groups = std::move(groups),
          .footer = footer};
}

}  // namespace

HelpPage short_help(const FlagSet& flags) {
  HelpPage page = page_of(flags, kWhat, kExamples, Extent::common,
                          [](const Flag& flag) { return flag.option.is_common; });
  HelpGroup more{
      "More",
      {{.name = "rondo train --help-all", .text = "every flag"},
       {.name = "rondo train --help NAME", .text = "description and flags of one of these names"}}};
  for (const Topic& topic : kTopics)
    more.entries.push_back(
        {.name = topic.title, .text = join(names_in(flags.choices().*topic.entries), ", ")});
  page.groups.push_back(std::move(more));
  return page;
}

HelpPage full_help(const FlagSet& flags) {
  return page_of(flags, kWhat, kExamples, Extent::all, [](const Flag&) { return true; });
}

HelpPage help_about(const FlagSet& flags, const std::string& name) {
  std::vector<std::string> known;
  for (const Topic& topic : kTopics) {
    const std::vector<Declaration>& entries = flags.choices().*topic.entries;
    const Declaration* const entry = find_declaration(entries, name);
    if (entry == nullptr) {
      known.push_back(str(topic.title, ": ", join(names_in(entries), ", ")));
      continue;
    }
    std::string description = str("--", topic.flag, " ", entry->name, ": ", entry->summary, ".");
    if (!entry->aliases.empty()) description += str(" Also called ", join(entry->aliases, ", "), ".");
    return page_of(flags, description, "", Extent::one_thing, [&](const Flag& flag) {
      const std::optional<OptionNeed> need = audience(flag);
      return entry->options.find(flag.option.name) != nullptr ||
             (need && std::find(need->values.begin(), need->values.end(), entry->name) != need->values.end());
    });
  }
  throw UsageError(str("--help ", name, ": unknown name. ", join(known, ". ")));
}

nlohmann::ordered_json help_as_json(const FlagSet& flags) {
  nlohmann::ordered_json document = {{"flags", nlohmann::ordered_json::array()}};
  for (const Flag& flag : flags.flags()) {
    const Option& option = flag.option;
    nlohmann::ordered_json entry = {
        {"name", option.name}, {"group", option.group}, {"help", option.help}, {"type", option.type}};
    entry["has_flag"] = option.has_flag;
    entry["default"] =
        option.default_text ? nlohmann::ordered_json(*option.default_text) : nlohmann::ordered_json(nullptr);
    const std::optional<OptionNeed> need = audience(flag);
    entry["for"] = nullptr;
    if (need)
      entry["for"] = {{"flag", need->option}, {"values", need->values}, {"text", audience_text(flags, flag)}};
    document["flags"].push_back(std::move(entry));
  }
  for (const ProgramFlag& flag : kProgramFlags) {
    document["flags"].push_back({{"name", flag.name},
                                 {"group", flag.group},
                                 {"help", flag.help},
                                 {"type", flag.type},
                                 {"has_flag", true},
                                 {"default", nullptr},
                                 {"for", nullptr}});
  }
  for (const Topic& topic : kTopics) {
    nlohmann::ordered_json& entries = document[topic.key] = nlohmann::ordered_json::array();
    for (const Declaration& declared : flags.choices().*topic.entries) {
      std::vector<std::string> names;
      for (const Option& option : declared.options.options()) names.push_back(option.name);
      entries.push_back({{"name", declared.name},
                         {"aliases", declared.aliases},
                         {"summary", declared.summary},
                         {"flags", names}});
    }
  }
  return document;
}

namespace {

constexpr std::size_t kOriginColumn = 40;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += str("\\", std::string(1, c));
    } else if (byte < 0x20 || byte == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", byte);
      result += escape.data();
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string toml_value(OptionKind kind, const std::string& text) {
  switch (kind) {
    case OptionKind::toggle:
      return text == "true" || text == "1" ? "true" : "false";
    case OptionKind::integer: {
      std::int64_t whole = 0;  // TOML has no larger numbers: a seed of 2^63 or more is written in quotes
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
      return error == std::errc() && end == text.data() + text.size() ? text : quoted(text);
    }
    case OptionKind::number: {
      std::array<char, 32> digits{};
      const double number = parse_number(text, "");
      return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
    }
    case OptionKind::list: {
      std::vector<std::string> items;
      for (const std::string& item : split(text, ',')) items.push_back(quoted(item));
      return "[" + join(items, ", ") + "]";
    }
    case OptionKind::text:
      break;
  }
  return quoted(text);
}

std::string origin_text(const TrainFlags& flags, const std::string& name) {
  const auto origin = flags.origins.find(name);
  if (origin == flags.origins.end()) return "default";
  if (origin->second.source == OptionSource::file) {
    std::string place = origin->second.place;
    std::replace(place.begin(), place.end(), '\n', ' ');
    return place;
  }
  return origin->second.source == OptionSource::set ? "--set" : "flag";
}

}  // namespace

std::string config_text(const FlagSet& set, const TrainFlags& flags) {
  std::string text = "# Options of rondo train: value and origin\n", group;
  for (const Flag& flag : set.flags()) {
    const Option& option = flag.option;
    if (option.group != group) text += str("\n# ", group = option.group, "\n");
    const std::string value = set.value_of(flag, flags);
    std::string line = value.empty() ? str("# ", option.name, " is not set")
                                     : str(option.name, " = ", toml_value(option.kind, value));
    if (!value.empty()) {
      line.resize(std::max(line.size() + 2, kOriginColumn), ' ');
      line += "# " + origin_text(flags, option.name);
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace rondo
