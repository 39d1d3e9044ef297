#include "apps/report/page.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/report/assets.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  while (true) {
    const std::size_t at = text.find(from);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += to;
    text.remove_prefix(at + from.size());
  }
}

// Escapes data for <script>. There HTML interprets only "</script" and "<!--". In JSON and in JavaScript
// strings "<" becomes an escape; in a library's code the end tag is split.
std::string json_for_html(const nlohmann::ordered_json& value) {
  return replaced(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), "<",
                  "\\u003c");
}
std::string script_for_html(std::string_view script) { return replaced(script, "</script", "<\\/script"); }

std::string text_for_html(std::string_view text) {
  return replaced(replaced(replaced(text, "&", "&amp;"), "<", "&lt;"), ">", "&gt;");
}

}  // namespace

std::string make_page(const nlohmann::ordered_json& document) {
  std::string scripts;
  for (const std::string_view script : assets::scripts) scripts += script;
  const std::pair<std::string_view, std::string> parts[]{
      {"@TITLE@", text_for_html(document.at("title").get<std::string>())},
      {"@STYLE@", std::string(assets::style_css)},
      {"@DATA@", json_for_html(document)},
      {"@CHART_LIBRARY@", script_for_html(assets::chart_library)},
      {"@SCRIPT@", script_for_html(scripts)},
  };
  // Replaces marks in page order, each once: inserted text is never searched for the next mark.
  std::string page;
  std::string_view rest = assets::page_html;
  for (const auto& [mark, text] : parts) {
    const std::size_t at = rest.find(mark);
    if (at == std::string_view::npos) throw Error(str("the page template lacks ", mark));
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + mark.size());
  }
  page += rest;
  return page;
}

}  // namespace rondo
