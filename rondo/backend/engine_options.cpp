#include "rondo/backend/engine_options.h"

#include "rondo/backend/engine_folders.h"

namespace rondo {

std::vector<Declaration> declared_engines() {
  std::vector<Declaration> engines;
  for_each_engine_folder([&](auto folder) { engines.push_back(decltype(folder)::declaration()); });
  return engines;
}

}  // namespace rondo
