#pragma once

#include <string>
#include <vector>

namespace rondo::bench {

// Runs the command to its end; its standard output is not shown. Throws Error when it fails.
void run_to_end(const std::vector<std::string>& words);

}  // namespace rondo::bench
