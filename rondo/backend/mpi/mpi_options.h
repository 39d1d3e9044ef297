#pragma once

#include "rondo/options/declaration.h"

namespace rondo {

struct RegisteredBackend;

// This folder's engine: what it is called and can be told (without libtorch), and how one is made.
struct MpiFolder {
  using Options = NoOptions;                             // it has none
  static Declaration declaration();                      // of engine mpi
  static RegisteredBackend engine(const Options& none);  // makes communicators
};

}  // namespace rondo
