#pragma once

// Version of the headers that a program is compiled against. The only definition: CMakeLists.txt reads it
// from here. Follows semantic versioning.
#define RONDO_VERSION_MAJOR 0
#define RONDO_VERSION_MINOR 2
#define RONDO_VERSION_PATCH 0
// The version as text: "0.2.0".
#define RONDO_VERSION "0.2.0"

namespace rondo {

// Version of the library that a program is linked to, in the format of RONDO_VERSION. A program can compare
// the two to detect headers of another version.
extern const char* const kVersion;

}  // namespace rondo
