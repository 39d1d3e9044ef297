#pragma once

#include <string>
#include <string_view>

namespace rondo::unicode {

// Returns UTF-8 text in Unicode's normalization form C: characters are decomposed, their marks ordered and
// composed again, as the `tokenizers` package does it. Bytes that are no UTF-8 stay where they are. Any
// thread.
std::string normalized_nfc(std::string_view text);

}  // namespace rondo::unicode
