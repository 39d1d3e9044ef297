#pragma once

#include <string>

namespace rondo::launch {

// Changes how `ps`, `pgrep` and `pkill -f` name this process, by writing over its command line's memory:
// main's argv must not be used afterwards. Does nothing where /proc does not show where that is.
void set_process_title(const std::string& title);

}  // namespace rondo::launch
