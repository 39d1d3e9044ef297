#pragma once

#include <string_view>

// The files of page/ and the chart library at build time.
namespace rondo::assets {

extern const std::string_view page_html;
extern const std::string_view style_css;
extern const std::string_view chart_library;
// All scripts of page/ in dependency order.
extern const std::string_view scripts[16];

}  // namespace rondo::assets
