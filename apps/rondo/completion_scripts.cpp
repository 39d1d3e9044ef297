#include "completion_scripts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/base/text.h"

using rondo::join;
using rondo::str;

namespace {

using Json = nlohmann::ordered_json;

bool has_part(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// Returns what a value or an argument named `type` is.
CompletedValue value_kind(const std::string& type) {
  if (type.empty()) return CompletedValue::none;
  if (has_part(type, "DIR")) return CompletedValue::folders;
  for (const char* of_files :
       {"FILE", "PATH", "TEXT", "PROFILE", "CHECKPOINT", "SOURCE", "TARGET", "INPUT", "OUTPUT"})
    if (has_part(type, of_files)) return CompletedValue::files;
  return CompletedValue::none;
}

std::string first_sentence(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (const std::size_t end = line.find(". "); end != std::string::npos) line.resize(end);
  if (line.ends_with(".")) line.pop_back();
  return line;
}

// Reads the groups of a page.
void read_entries(const Json& page, CompletedCommand& command) {
  std::vector<std::string> settings;  // options that have no flag
  for (const Json& group : page.at("groups")) {
    const std::string title = group.at("title");
    for (const Json& entry : group.at("entries")) {
      const auto names = entry.at("names").get<std::vector<std::string>>();
      const std::string type = entry.at("type");
      const auto words = entry.at("choices").get<std::vector<std::string>>();
      const CompletedValue value = words.empty() ? value_kind(type) : CompletedValue::words;
      if (title == "Arguments") {
        command.words = words;
        command.arguments = words.empty() ? value_kind(names.front()) : value;
        continue;
      }
      if (title == "Commands") continue;
      if (!names.front().starts_with("-")) {
        settings.push_back(names.front() + "=");
        continue;
      }
      command.flags.push_back({.names = names,
                               .text = entry.at("text"),
                               .type = type,
                               .value = value,
                               .words = words,
                               .may_repeat = type == "NAME=VALUE" || has_part(type, ":COMMAND")});
    }
  }
  for (CompletedFlag& flag : command.flags) {
    if (flag.type != "NAME=VALUE" || settings.empty()) continue;
    flag.value = CompletedValue::words;
    flag.words = settings;
  }
}

void read_page(const Json& page, const std::vector<std::string>& path,
               std::vector<CompletedCommand>& commands) {
  CompletedCommand command;
  command.path = path;
  command.summary = first_sentence(page.at("summary"));
  command.runs_program = has_part(page.at("usage"), " PROGRAM");
  read_entries(page, command);
  for (const Json& below : page.at("commands")) {
    const std::string name = below.at("name").get<std::string>();
    command.commands.emplace_back(name.substr(name.rfind(' ') + 1), first_sentence(below.at("summary")));
  }
  commands.push_back(std::move(command));
  const auto below_path = [&](const std::string& name) {
    std::vector<std::string> result = path;
    result.push_back(name);
    return result;
  };
  for (std::size_t i = 0; i < page.at("commands").size(); ++i) {
    const std::string name = page.at("commands")[i].at("name");
    read_page(page.at("commands")[i], below_path(name.substr(name.rfind(' ') + 1)), commands);
  }
}

// Returns the name of a command's shell function: "_rondo_checkpoint_inspect".
std::string function_name(const std::vector<std::string>& path) {
  std::string name = "_" + join(path, "_");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Returns `text` as one word of a POSIX shell.
std::string shell_word(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::vector<std::string> names_of(const CompletedCommand& command, bool all) {
  std::vector<std::string> names;
  for (const CompletedFlag& flag : command.flags) {
    if (all || flag.type.empty()) names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return names;
}

std::vector<std::string> names_of_commands(const CompletedCommand& command) {
  std::vector<std::string> names;
  for (const auto& [name, summary] : command.commands) names.push_back(name);
  return names;
}

constexpr const char* kBashFunctions = R"(
_rondo_offer() {
  COMPREPLY=($(compgen -W "$1" -- "$2"))
  if [[ ${COMPREPLY-} == *= ]]; then compopt -o nospace 2> /dev/null; fi
}

_rondo_paths() {
  local IFS=$'\n'
  COMPREPLY=($(compgen "$1" -- "$2"))
  compopt -o filenames 2> /dev/null
}

# Completes the command line that begins at word $1, as after 'rondo run'.
_rondo_program() {
  COMP_WORDS=("${COMP_WORDS[@]:$1}")
  ((COMP_CWORD -= $1))
  if [[ $COMP_CWORD -eq 0 ]]; then
    _rondo_paths -c "${COMP_WORDS[0]}"
    ((${#COMPREPLY[@]} > 0)) || _rondo_paths -f "${COMP_WORDS[0]}"
  elif [[ ${COMP_WORDS[0]##*/} == rondo ]]; then
    _rondo
  else
    _rondo_paths -f "${COMP_WORDS[COMP_CWORD]}"
  fi
}

_rondo() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]-} word i
  local command=rondo flags switches commands arguments runs_program
  COMPREPLY=()
  _rondo_describe
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ " $commands " == *" $word "* ]]; then
      command+=" $word"
      _rondo_describe
    elif [[ -n $runs_program ]]; then
      if [[ $word == -- ]]; then
        _rondo_program $((i + 1))
        return
      elif [[ $word == = ]]; then
        ((i++))
      elif [[ $word == -* ]]; then
        [[ " $switches " == *" $word "* || ${COMP_WORDS[i+1]-} == = ]] || ((i++))
      else
        _rondo_program "$i"
        return
      fi
    fi
  done
  # The shell splits --flag=value into three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if [[ $cur != -* && $prev == -* && " $flags " == *" $prev "* && " $switches " != *" $prev "* ]]; then
    _rondo_value
  elif [[ $cur == -* ]]; then
    _rondo_offer "$flags" "$cur"
  elif [[ -n $commands ]]; then
    _rondo_offer "$commands" "$cur"
  elif [[ -n $runs_program ]]; then
    _rondo_program "$COMP_CWORD"
  elif [[ $arguments == -? ]]; then
    _rondo_paths "$arguments" "$cur"
  else
    _rondo_offer "$arguments" "$cur"
  fi
}
complete -F _rondo rondo
)";

// Returns the option of bash's compgen for paths; empty for other values.
std::string compgen_option(CompletedValue value) {
  if (value == CompletedValue::files) return "-f";
  return value == CompletedValue::folders ? "-d" : "";
}

// Returns `text` for zsh's _arguments, within brackets.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_action(CompletedValue value, const std::vector<std::string>& words) {
  if (value == CompletedValue::words) return "(" + join(words, " ") + ")";
  if (value == CompletedValue::files) return "_files";
  return value == CompletedValue::folders ? "_files -/" : " ";
}

// Returns the specifications of a flag, one for each name.
std::string zsh_flag(const CompletedFlag& flag) {
  std::string lines;
  for (const std::string& name : flag.names) {
    std::string spec = flag.may_repeat          ? "*"
                       : flag.names.size() == 1 ? ""
                                                : "(" + join(flag.names, " ") + ")";
    spec += name;
    if (!flag.type.empty()) spec += name.starts_with("--") ? "=" : "+";
    spec += "[" + zsh_text(flag.text) + "]";
    if (!flag.type.empty()) {
      const std::string optional = flag.type.starts_with("[") ? ":" : "";
      spec += ":" + optional + zsh_text(flag.type) + ":" + zsh_action(flag.value, flag.words);
    }
    lines += "    " + shell_word(spec) + " \\\n";
  }
  return lines;
}

std::string fish_condition(const CompletedCommand& command) {
  const std::vector<std::string> words(command.path.begin() + 1, command.path.end());
  return words.empty() ? "__rondo_is" : "__rondo_is " + join(words, " ");
}

// Returns `text` as one word of fish.
std::string fish_word(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const Json& help) {
  std::vector<CompletedCommand> commands;
  read_page(help, {"rondo"}, commands);
  return commands;
}

std::string bash_completion(const std::vector<CompletedCommand>& commands) {
  std::string describe, values;
  for (const CompletedCommand& command : commands) {
    const std::string path = join(command.path, " ");
    std::string arguments =
        command.words.empty() ? compgen_option(command.arguments) : join(command.words, " ");
    if (!command.commands.empty()) arguments.clear();
    describe +=
        str("    ", shell_word(path), ")\n      flags=", shell_word(join(names_of(command, true), " ")),
            "\n      switches=", shell_word(join(names_of(command, false), " ")),
            "\n      commands=", shell_word(join(names_of_commands(command), " ")),
            "\n      arguments=", shell_word(arguments),
            "\n      runs_program=", command.runs_program ? "1" : "", "\n      ;;\n");
    for (const CompletedFlag& flag : command.flags) {
      if (flag.value == CompletedValue::none) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names) patterns.push_back(shell_word(path + " " + name));
      const std::string action = flag.value == CompletedValue::words
                                     ? str("_rondo_offer ", shell_word(join(flag.words, " ")))
                                     : str("_rondo_paths ", compgen_option(flag.value));
      values += str("    ", join(patterns, " | "), ") ", action, " \"$cur\" ;;\n");
    }
  }
  return str("# Completion of rondo for bash, by 'rondo completion bash'.\n\n",
             "# Sets what the command $command takes.\n_rondo_describe() {\n  case $command in\n", describe,
             "  esac\n}\n\n# Completes the value of the flag $prev.\n_rondo_value() {\n  case \"$command "
             "$prev\" in\n",
             values, "  esac\n}\n", kBashFunctions);
}

std::string zsh_completion(const std::vector<CompletedCommand>& commands) {
  std::string text = "#compdef rondo\n# Completion of rondo for zsh, by 'rondo completion zsh'.\n";
  for (const CompletedCommand& command : commands) {
    text += "\n" + function_name(command.path) + "() {\n";
    if (!command.commands.empty())
      text += "  local curcontext=\"$curcontext\" state line\n  local -a commands\n";
    text += str("  _arguments ", command.commands.empty() ? "" : "-C ", "\\\n");
    for (const CompletedFlag& flag : command.flags) text += zsh_flag(flag);
    if (command.commands.empty()) {
      text += command.runs_program
                  ? std::string("    '(-)1:program:_command_names -e' '*::argument:_normal'\n}\n")
                  : str("    ", shell_word("*:argument:" + zsh_action(command.arguments, command.words)),
                        "\n}\n");
      continue;
    }
    text +=
        "    '1:command:->command' '*::argument:->argument' && return\n  case $state in\n    command)\n"
        "      commands=(\n";
    for (const auto& [name, summary] : command.commands)
      text += str("        ", shell_word(name + ":" + summary), "\n");
    text += "      )\n      _describe command commands ;;\n    argument)\n      case $words[1] in\n";
    for (const auto& [name, summary] : command.commands) {
      std::vector<std::string> path = command.path;
      path.push_back(name);
      text += str("        ", name, ") ", function_name(path), " ;;\n");
    }
    text += "      esac ;;\n  esac\n}\n";
  }
  return text +
         "\n# Loaded by zsh as a function, or read as a script.\nif [[ $funcstack[1] == _rondo ]]; then\n"
         "  _rondo \"$@\"\nelse\n  compdef _rondo rondo\nfi\n";
}

std::string fish_completion(const std::vector<CompletedCommand>& commands) {
  std::string text =
      "# Completion of rondo for fish, by 'rondo completion fish'.\n\n"
      "# Whether the words after rondo begin with these.\nfunction __rondo_is\n"
      "  set -l words (commandline -opc)[2..]\n"
      "  set -l size (count $argv)\n"
      "  test (count $words) -ge $size; and test \"$words[1..$size]\" = \"$argv\"\nend\n\n"
      "# Whether the words after rondo are these.\nfunction __rondo_is_all\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words\" = \"$(string join ' ' rondo $argv)\"\nend\n\n"
      "complete -c rondo -e\n";
  for (const CompletedCommand& command : commands) {
    const std::string is = fish_condition(command);
    const std::string is_all = "__rondo_is_all" + is.substr(std::string("__rondo_is").size());
    for (const auto& [name, summary] : command.commands)
      text +=
          str("complete -c rondo -f -n ", fish_word(is_all), " -a ", name, " -d ", fish_word(summary), "\n");
    const bool has_no_files =
        !command.commands.empty() || !command.words.empty() || command.arguments == CompletedValue::none;
    if (has_no_files && command.path.size() > 1) {
      text += str("complete -c rondo -f -n ", fish_word(is));
      if (!command.words.empty()) text += " -a " + fish_word(join(command.words, " "));
      text += "\n";
    }
    for (const CompletedFlag& flag : command.flags) {
      text += str("complete -c rondo -n ", fish_word(command.path.size() == 1 ? "__rondo_is_all" : is));
      for (const std::string& name : flag.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += " -d " + fish_word(flag.text);
      if (!flag.type.empty() && !flag.type.starts_with("[")) {
        if (flag.value == CompletedValue::words)
          text += " -x -a " + fish_word(join(flag.words, " "));
        else if (flag.value == CompletedValue::folders)
          text += " -x -a '(__fish_complete_directories)'";
        else
          text += flag.value == CompletedValue::files ? " -r -F" : " -x";
      }
      text += "\n";
    }
  }
  return text;
}
