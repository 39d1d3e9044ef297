#pragma once

// The version of the headers that a program is compiled against. CMakeLists.txt reads it from here, so that
// it stands in one place. Versions follow semantic versioning.
#define RONDO_VERSION_MAJOR 0
#define RONDO_VERSION_MINOR 1
#define RONDO_VERSION_PATCH 0
// The three as text: "0.1.0".
#define RONDO_VERSION "0.1.0"

namespace rondo {

// The version of the library that a program is linked to, as RONDO_VERSION is written: a program that was
// compiled against other headers can tell.
extern const char* const kVersion;

}  // namespace rondo
