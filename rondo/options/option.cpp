#include "rondo/options/option.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

// 1000000 and not 1e+06.
std::string plain_number(double number) {
  if (std::nearbyint(number) == number && std::abs(number) < 1e15)
    return std::to_string(static_cast<long long>(number));
  return str(number);
}

// "expected a whole number above 0".
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
    // Numbers are said in one way, whether they cannot be read or lie outside.
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

}  // namespace rondo
