#include "apps/train/flag_set.h"

#include <algorithm>
#include <charconv>

#include "apps/common/wrong_flag.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/models/model_options.h"

namespace rondo {
namespace {

nlohmann::ordered_json json_of(OptionKind kind, const std::string& text) {
  switch (kind) {
    case OptionKind::toggle:
      return text == "true" || text == "1";
    case OptionKind::integer: {
      std::int64_t value = 0;
      const char* const end = text.data() + text.size();
      if (std::from_chars(text.data(), end, value).ec == std::errc()) return value;
      std::uint64_t beyond = 0;  // a seed of 2^63 or more
      std::from_chars(text.data(), end, beyond);
      return beyond;
    }
    case OptionKind::number:
      return parse_number(text, "");
    case OptionKind::list:
      return split(text, ',');
    case OptionKind::text:
      break;
  }
  return text;
}

// Returns the declaration of the chosen entry, or null if its name is unknown. "auto" accepts the options of
// the entry that it may select for several processes (--strategy) or several hosts (--backend).
const Declaration* chosen_entry(const TrainChoices& choices, const Choice& choice, std::string name) {
  const std::vector<Declaration>& entries = choices.*choice.entries;
  const std::string flag = choice.flag;
  if (flag == "model") return find_model_declaration(entries, name);
  if (flag == "strategy" && name == "auto") name = strategy_of_auto(/*several_processes=*/true);
  if (flag == "backend") {
    if (name == "auto") name = engine_of_auto(/*one_host=*/false);
    static const Declaration of_module{.name = "of a module", .summary = "has no options that rondo knows"};
    const EngineText engine{std::string(trim(name.substr(0, name.find('('))))};
    if (is_of_module(engine)) return &of_module;
    name = engine.name;
  }
  return find_declaration(entries, name);
}

// Moves options in brackets of --backend to options of their own.
void take_out_of_brackets(const std::vector<Declaration>& engines, OptionValues& values) {
  const auto backend = values.find("backend");
  if (backend == values.end()) return;
  check_engine(backend->second, "--backend", engines);
  const EngineText engine = split_engine(backend->second);
  const Declaration* const declared = find_declaration(engines, engine.name);
  if (declared == nullptr) return;  // of a module, or auto
  for (const auto& [name, value] : options_in_brackets(engine, *declared)) {
    const auto [flag, is_new] = values.emplace(name, value);
    if (!is_new && flag->second != value) {
      const std::string shown = declared->options.find(name)->shown_name();
      throw UsageError(str(shown, " ", flag->second, " and --backend ", backend->second,
                           " contradict each other: leave one of them out"));
    }
  }
  backend->second = declared->name;
}

// Returns the entries that a list chooses; skips names that are no entries.
std::vector<const Declaration*> chosen_entries(const TrainChoices& choices, const Choice& choice,
                                               const std::string& names) {
  std::vector<const Declaration*> chosen;
  for (const std::string& name : choice.is_list ? split(names, ',') : std::vector{names}) {
    const Declaration* const entry = chosen_entry(choices, choice, name);
    if (entry != nullptr) chosen.push_back(entry);
  }
  return chosen;
}

bool any_has(const std::vector<const Declaration*>& entries, const std::string& option) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Declaration* entry) { return entry->options.find(option) != nullptr; });
}

// Calls `use`. Adds the option's location in a configuration file to a UsageError that it throws.
template <class Use>
void with_place(const TrainFlags& flags, const std::string& option, const Use& use) {
  const auto origin = flags.origins.find(option);
  if (origin == flags.origins.end() || origin->second.source != OptionSource::file) return use();
  try {
    use();
  } catch (const UsageError& error) {
    throw UsageError(str(origin->second.place, ": ", error.what()));
  }
}

}  // namespace

FlagSet::FlagSet(TrainChoices choices) : choices_(std::move(choices)) {
  const OptionTable own = train_flags_table(choices_);
  for (const Option& option : own.options()) flags_.push_back({option});
  for (const Choice& choice : kChoices) {
    const std::vector<Declaration>& entries = choices_.*choice.entries;
    for (const Declaration& entry : entries) {
      for (const Option& option : entry.options.options()) {
        const Flag* const known = find(option.name);
        if (known == nullptr) {
          flags_.push_back({option, choice.flag, takers_of(entries, option.name)});
          if (option.group.empty()) flags_.back().option.group = str("Options of --", choice.flag);
        } else if (known->choice != choice.flag || known->option.help != option.help ||
                   known->option.type != option.type) {
          throw Error(str(choice.flag, " ", entry.name, " declares --", option.name, " in another way than ",
                          known->choice.empty() ? "rondo train itself" : known->takers.front(),
                          "; share one declaration, or give it another name"));
        }
      }
    }
  }
}

const Flag* FlagSet::find(const std::string& name) const {
  const auto found =
      std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.option.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

void FlagSet::read(const OptionValues& given, TrainFlags& flags) const {
  OptionValues values = given;
  take_out_of_brackets(choices_.engines, values);
  for (const auto& each : values) {
    const std::string &name = each.first, &value = each.second;
    const Flag& flag = *find(name);
    with_place(flags, name, [&] {
      if (flag.choice.empty()) return flag.option.read(&flags, value);
      for (const Choice& choice : kChoices) {
        if (flag.choice != choice.flag) continue;
        const OptionTable& table = find_declaration(choices_.*choice.entries, flag.takers.front())->options;
        // Checks the value with the option of that entry: options of other entries belong to other structs.
        table.find(name)->read(table.make().get(), value);
      }
      flags.options[name] = value;
    });
  }
}

const Flag& FlagSet::require(const std::string& name) const {
  if (const Flag* const flag = find(name)) return *flag;
  for (const ProgramFlag& flag : kProgramFlags) {
    if (name == flag.name)
      throw UsageError(str("'", name, "' can only be given on the command line: give --", name, " there"));
  }
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.option.name);
  const std::string meant = suggest_option(name, names);
  throw UsageError(
      str("'", printable(name), "' is no option of rondo train",
          meant.empty() ? "; rondo train --help-all lists them" : str("; did you mean ", meant, "?")));
}

std::string FlagSet::value_of(const Flag& flag, const TrainFlags& flags) const {
  if (flag.choice.empty()) return flag.option.text(&flags).value_or("");
  const auto given = flags.options.find(flag.option.name);
  return given != flags.options.end() ? given->second : flag.option.default_text.value_or("");
}

void FlagSet::drop_options_of_others(const OptionValues& given, OptionValues& values) const {
  for (const Choice& choice : kChoices) {
    const auto name = given.find(choice.flag);
    if (name == given.end()) continue;
    const std::vector<const Declaration*> chosen = chosen_entries(choices_, choice, name->second);
    if (chosen.empty() && !choice.is_list) continue;
    std::erase_if(values, [&](const auto& value) {
      const Flag& flag = *find(value.first);
      return flag.choice == choice.flag && !any_has(chosen, flag.option.name);
    });
  }
  std::erase_if(values, [&](const auto& value) {
    const std::optional<OptionNeed>& needs = find(value.first)->option.needs;
    if (!needs || needs->values.empty()) return false;
    const auto other = given.find(needs->option);
    return other != given.end() &&
           std::find(needs->values.begin(), needs->values.end(), other->second) == needs->values.end();
  });
}

void FlagSet::refuse_without_effect(const TrainFlags& flags) const {
  for (const Choice& choice : kChoices) {
    const std::string name = value_of(*find(choice.flag), flags);
    const std::vector<const Declaration*> chosen = chosen_entries(choices_, choice, name);
    if (chosen.empty() && !choice.is_list) continue;  // the kind of data is detected later
    OptionValues given = flags.options;
    std::erase_if(given, [&](const auto& each) { return any_has(chosen, each.first); });
    // Each dimension of a mesh has a strategy of its name, too.
    const bool is_strategy = std::string(choice.flag) == "strategy";
    for (const MeshDimension& dimension :
         is_strategy && !flags.mesh.empty() ? parse_mesh(flags.mesh, "--mesh") : Mesh()) {
      const Declaration* const other = find_declaration(choices_.*choice.entries, dimension.name);
      if (other == nullptr) continue;
      std::erase_if(given, [&](const auto& each) { return other->options.find(each.first) != nullptr; });
    }
    for (const auto& each : given) {
      with_place(flags, each.first,
                 [&] { refuse_options_of_others(choices_.*choice.entries, {}, choice.flag, name, {each}); });
    }
  }
  for (const Flag& flag : flags_) with_place(flags, flag.option.name, [&] { refuse_unneeded(flag, flags); });
}

void FlagSet::refuse_unneeded(const Flag& flag, const TrainFlags& flags) const {
  const std::optional<OptionNeed>& needs = flag.option.needs;
  if (!needs || value_of(flag, flags) == flag.option.default_text.value_or("")) return;
  const Flag& needed = *find(needs->option);
  const std::string other = value_of(needed, flags), name = flag.option.shown_name();
  const std::string wanted = needed.option.shown_name();
  if (needs->values.empty()) {
    const bool is_given = needed.choice.empty() ? needed.option.text(&flags).has_value() : !other.empty();
    if (is_given) return;
    throw UsageError(str(name, " has no effect without ", wanted, ": leave it out, or add that flag"));
  }
  if (std::find(needs->values.begin(), needs->values.end(), other) != needs->values.end()) return;
  throw UsageError(str(name, " has no effect with ", wanted, " ", other, "; it is for ", wanted, " ",
                       list_with_or(needs->values), ": leave it out, or use one of these"));
}

std::string FlagSet::engine(const TrainFlags& flags) const {
  constexpr Choice kBackend{"backend", &TrainChoices::engines};
  const Declaration& chosen = *chosen_entry(choices_, kBackend, flags.backend);
  OptionValues options = flags.options_in(chosen.options);
  std::erase_if(options, [&](const auto& option) {
    return !chosen.options.differs_from_default(*chosen.options.find(option.first), option.second);
  });
  if (options.empty()) return flags.backend;
  std::string engine = engine_with_options(chosen.name, options);
  check_engine(engine, "--backend", choices_.engines);
  return engine;
}

void FlagSet::ask_strategy(TrainFlags& flags) const {
  const Declaration* const chosen = find_declaration(choices_.strategies, flags.strategy);
  if (chosen == nullptr) return;  // auto: one replica, without a plan
  flags.is_planned = chosen->is_planned;
  if (chosen->replicas_per_process)
    flags.replicas = chosen->replicas_per_process(flags.options_in(chosen->options));
}

std::vector<std::string> FlagSet::changed_options(const nlohmann::ordered_json& configuration) const {
  std::vector<std::string> keys;
  for (const Flag& flag : flags_) {
    std::string key = flag.option.name;
    std::replace(key.begin(), key.end(), '-', '_');
    const auto value = configuration.find(key);
    if (value == configuration.end()) continue;
    const bool is_default =
        flag.option.default_text && *value == json_of(flag.option.kind, *flag.option.default_text);
    if (!is_default) keys.push_back(std::move(key));
  }
  return keys;
}

nlohmann::ordered_json FlagSet::configuration(const TrainFlags& flags) const {
  nlohmann::ordered_json document = nlohmann::ordered_json::object();
  for (const Flag& flag : flags_) {
    const bool given = flags.options.contains(flag.option.name);
    const bool has_value =
        flag.choice.empty() ? flag.option.text(&flags).has_value() : given || flag.option.default_text;
    if (!has_value || !belongs_to_training(flag.option.name)) continue;
    std::string key = flag.option.name;
    std::replace(key.begin(), key.end(), '-', '_');
    document[key] = json_of(flag.option.kind, value_of(flag, flags));
  }
  return document;
}

}  // namespace rondo
