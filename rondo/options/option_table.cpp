#include "rondo/options/option_table.h"

#include <cxxabi.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
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

}  // namespace rondo
