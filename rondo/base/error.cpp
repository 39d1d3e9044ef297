#include "rondo/base/error.h"

#include <system_error>

namespace rondo {

std::string errno_text(int code) { return std::generic_category().message(code); }

}  // namespace rondo
