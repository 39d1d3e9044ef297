#pragma once

#include <string_view>

// The files of page/ and the chart library, as they were when the program was built.
namespace rondo::assets {

extern const std::string_view page_html;
extern const std::string_view style_css;
extern const std::string_view chart_library;
// All scripts of page/ in the order in which they build on each other.
extern const std::string_view scripts[13];

}  // namespace rondo::assets
