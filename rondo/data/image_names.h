#pragma once

#include <string>
#include <string_view>

namespace rondo {

// Returns the text with small letters for A to Z.
std::string lower_case(std::string text);

// Returns whether files with this ending, in small letters and without its dot, are read as images.
bool is_image_ending(std::string_view ending);

// Returns whether the ending is that of an image in a format that is not read.
bool is_unread_image_ending(std::string_view ending);

}  // namespace rondo
