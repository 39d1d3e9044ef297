#pragma once

#include <string>

#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// A file in memory that only this user opens, without a name in any folder; it ends with the last process
// that has it open. Throws Error.
Descriptor make_memory_file(const std::string& name);

// The path by which this process's children open such a file.
std::string path_of(const Descriptor& file);

}  // namespace rondo::launch
