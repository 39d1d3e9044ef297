#include "rondo/options/option_table.h"

#include <cxxabi.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/options/declaration.h"
#include "rondo/options/option.h"

namespace rondo {
namespace {

// Formats 1000000 without an exponent (not 1e+06).
std::string plain_number(double number) {
  if (std::nearbyint(number) == number && std::abs(number) < 1e15)
    return std::to_string(static_cast<long long>(number));
  return str(number);
}

// Returns the expected value for errors: "a whole number above 0".
std::string expectation(const Option& option) {
  if (!option.allowed.names.empty()) return "one of " + join(option.allowed.names, ", ");
  const char* const kind = option.kind == OptionKind::integer  ? "a whole number"
                           : option.kind == OptionKind::toggle ? "true or false"
                                                               : "a number";
  return option.allowed.rule.empty() ? kind : str(kind, " ", option.allowed.rule);
}

bool keeps_to(const AllowedValues& allowed, OptionKind kind, const std::string& text) {
  if (allowed.number) return allowed.number(parse_number(text, ""));
  if (allowed.names.empty()) return true;
  const std::vector<std::string> items =
      kind == OptionKind::list ? split(text, ',') : std::vector<std::string>{text};
  return std::all_of(items.begin(), items.end(), [&](const std::string& item) {
    return std::find(allowed.names.begin(), allowed.names.end(), item) != allowed.names.end();
  });
}

}  // namespace

AllowedValues above_zero() {
  return {.rule = "above 0", .number = [](double number) { return number > 0; }};
}

AllowedValues zero_or_more() {
  return {.rule = "that is 0 or more", .number = [](double number) { return number >= 0; }};
}

AllowedValues within(double least, double most) {
  return {.rule = str("from ", plain_number(least), " to ", plain_number(most)),
          .number = [least, most](double number) { return number >= least && number <= most; }};
}

AllowedValues one_of(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::string type = "{" + join(names, ",") + "}";
  return {.names = std::move(names), .type = std::move(type)};
}

AllowedValues path_to_read() {
  return {.check =
              [](const std::string& path, const std::string& what) {
                struct stat status {};
                if (stat(path.c_str(), &status) != 0)
                  throw UsageError(str(what, ": ", path, ": ", errno_text(errno)));
              },
          .type = "PATH"};
}

AllowedValues size_in_bytes() {
  return {.check = [](const std::string& text, const std::string& what) { parse_bytes(text, what); },
          .type = "SIZE"};
}

AllowedValues duration() {
  return {.check = [](const std::string& text, const std::string& what) { parse_duration(text, what); },
          .type = "TIME"};
}

void Option::read(void* options, const std::string& value) const {
  const std::string what = shown_name();
  if (allowed.check) allowed.check(value, what);
  bool is_allowed = false;
  try {
    is_allowed = keeps_to(allowed, kind, value);
    if (is_allowed) set(options, value, what);
  } catch (const UsageError&) {
    // Numeric options report the same error for unreadable and for out-of-range values.
    if (kind == OptionKind::text || kind == OptionKind::list) throw;
    is_allowed = false;
  }
  if (!is_allowed) throw UsageError(str(what, " ", value, ": expected ", expectation(*this)));
}

std::string list_with_or(const std::vector<std::string>& items) {
  if (items.size() < 2) return join(items, "");
  const std::vector<std::string> first(items.begin(), items.end() - 1);
  return str(join(first, ", "), " or ", items.back());
}

namespace {

template <class Integer>
Integer read_integer(const std::string& text, const std::string& what) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    throw UsageError(
        str(what, ": '", text, "' is not a whole number of at most ", std::numeric_limits<Integer>::max()));
  return value;
}

}  // namespace

void read_option(const std::string& text, const std::string& what, bool& value) {
  value = text == "true" || text == "1";
  if (!value && text != "false" && text != "0")
    throw UsageError(str(what, ": '", text, "' is neither true nor false"));
}
void read_option(const std::string& text, const std::string& what, int& value) {
  value = read_integer<int>(text, what);
}
void read_option(const std::string& text, const std::string& what, std::int64_t& value) {
  value = read_integer<std::int64_t>(text, what);
}
void read_option(const std::string& text, const std::string& what, std::uint64_t& value) {
  value = read_integer<std::uint64_t>(text, what);
}
void read_option(const std::string& text, const std::string& what, double& value) {
  value = parse_number(text, what);
}
void read_option(const std::string& text, const std::string&, std::string& value) { value = text; }
void read_option(const std::string& text, const std::string&, std::vector<std::string>& value) {
  value = split(text, ',');
}
void read_option(const std::string& text, const std::string& what, Bytes& value) {
  value = parse_bytes(text, what);
}

std::string option_text(bool value) { return value ? "true" : "false"; }
std::string option_text(int value) { return std::to_string(value); }
std::string option_text(std::int64_t value) { return std::to_string(value); }
std::string option_text(std::uint64_t value) { return std::to_string(value); }
std::string option_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}
std::string option_text(const std::string& value) { return value; }
std::string option_text(const std::vector<std::string>& value) { return join(value, ","); }
std::string option_text(Bytes value) {
  constexpr std::array<std::pair<const char*, std::uint64_t>, 3> units{
      {{"GiB", GiB(1).count}, {"MiB", MiB(1).count}, {"KiB", KiB(1).count}}};
  for (const auto& [name, bytes] : units) {
    if (value.count >= bytes && value.count % bytes == 0) return str(value.count / bytes, name);
  }
  return std::to_string(value.count);
}

const Option* OptionTable::find(std::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

Option& OptionTable::require(const std::string& name) {
  for (Option& option : options_) {
    if (option.name == name) return option;
  }
  throw Error(str("no option '", name, "' was declared here"));
}

std::string type_name(std::type_index type) {
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), std::free);
  return text ? text.get() : type.name();
}

std::shared_ptr<void> OptionTable::read(const OptionValues& values) const {
  std::shared_ptr<void> options = make();
  for (const auto& [name, value] : values) {
    const Option* const option = find(name);
    if (option == nullptr) {
      std::vector<std::string> known;
      for (const Option& each : options_) known.push_back(each.name);
      throw UsageError(str("there is no option '", name, "' here; ",
                           known.empty() ? "there are none" : "there are " + join(known, ", ")));
    }
    option->read(options.get(), value);
  }
  return options;
}

bool OptionTable::differs_from_default(const Option& option, const std::string& value) const {
  const std::shared_ptr<void> options = make();
  option.read(options.get(), value);
  return option.text(options.get()) != option.default_text;
}

bool Declaration::is_called(const std::string& text) const {
  return text == name || std::find(aliases.begin(), aliases.end(), text) != aliases.end();
}

const Declaration* find_declaration(const std::vector<Declaration>& entries, const std::string& name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Declaration& entry) { return entry.is_called(name); });
  return found == entries.end() ? nullptr : &*found;
}

ServedWorker worker_of(const std::vector<Declaration>& strategies, const std::string& name) {
  const Declaration* const found = find_declaration(strategies, name);
  return found == nullptr ? ServedWorker::none : found->worker;
}

std::vector<std::string> takers_of(const std::vector<Declaration>& entries, const std::string& option) {
  std::vector<std::string> names;
  for (const Declaration& entry : entries) {
    if (entry.options.find(option) != nullptr) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void refuse_options_of_others(const std::vector<Declaration>& entries, const Declaration& chosen,
                              const std::string& flag, const std::string& shown, const OptionValues& given) {
  for (const auto& [name, value] : given) {
    const std::vector<std::string> takers = takers_of(entries, name);
    if (takers.empty() || chosen.options.find(name) != nullptr) continue;
    const OptionTable& table = find_declaration(entries, takers.front())->options;
    const Option& option = *table.find(name);
    if (!table.differs_from_default(option, value)) continue;
    throw UsageError(str(option.shown_name(), " has no effect with --", flag, " ", shown, "; it is for --",
                         flag, " ", list_with_or(takers), ": leave it out, or use one of these"));
  }
}

}  // namespace rondo
