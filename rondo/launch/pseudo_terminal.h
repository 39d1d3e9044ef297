#pragma once

#include <optional>

#include "rondo/base/terminal.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// A pseudo-terminal that stands in for a worker's output stream: the worker writes to `write_end`, for which
// isatty() is true and whose size is `size`; the launcher reads the same bytes, untranslated, from
// `read_end`. Reading ends with EIO when the last writer has gone. Programs started later do not inherit
// either end, and neither becomes a controlling terminal. Empty where the system gives none.
std::optional<Pipe> make_pseudo_terminal(TerminalSize size);

}  // namespace rondo::launch
