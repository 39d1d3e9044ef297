#pragma once

#include <string>

namespace rondo {

// Finds a module of rondo's own ("rondo_mpi.so"): code that a program loads by name, and only where it is
// asked for. Looks at the path in the variable of the module's name ($RONDO_MPI_MODULE), which need not
// exist; then for the file beside this program, in ../lib and ../../lib from there, and where the dynamic
// linker looks (the program's run path, LD_LIBRARY_PATH, the system's folders). Returns an empty text where
// there is none. Any thread.
std::string find_module(const std::string& file);

}  // namespace rondo
