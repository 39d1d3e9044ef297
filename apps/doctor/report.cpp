#include "report.h"

#include <algorithm>

#include "rondo/base/text.h"
#include "rondo/base/version.h"

namespace doctor {
namespace {

const char* colour(State state) {
  switch (state) {
    case State::ok:
      return "\x1b[32m";
    case State::missing:
      return "\x1b[33m";
    case State::warning:
      return "\x1b[33m";
    case State::broken:
      return "\x1b[31m";
  }
  return "";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

const char* to_string(State state) {
  switch (state) {
    case State::ok:
      return "ok";
    case State::missing:
      return "missing";
    case State::warning:
      return "warning";
    case State::broken:
      return "broken";
  }
  return "?";
}

std::string to_table(const Findings& findings, bool coloured) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  std::string text;
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section) {
      section = finding.section;
      text += rondo::str(text.empty() ? "" : "\n", section, "\n");
    }
    const std::string state = padded(to_string(finding.state), 8);
    text += rondo::str("  ", coloured ? colour(finding.state) : "", state, coloured ? "\x1b[0m" : "", " ",
                       padded(finding.name, width), "  ", finding.detail, "\n");
    if (!finding.get.empty())
      text += rondo::str("           ", padded("", width), "  -> ", finding.get, "\n");
  }
  return text;
}

nlohmann::ordered_json to_json(const Findings& findings) {
  auto list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"section", finding.section},
                    {"name", finding.name},
                    {"state", to_string(finding.state)},
                    {"detail", finding.detail},
                    {"get", finding.get},
                    {"data", finding.data}});
  }
  return {{"rondo_version", rondo::kVersion}, {"healthy", healthy(findings)}, {"findings", list}};
}

bool healthy(const Findings& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& f) { return f.state == State::broken; });
}

}  // namespace doctor
