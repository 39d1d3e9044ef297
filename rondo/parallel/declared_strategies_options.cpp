#include "rondo/parallel/declared_strategies_options.h"

#include "rondo/parallel/strategy_folders.h"
#include "rondo/strategy/one_device_options.h"

namespace rondo {

std::vector<Declaration> declared_strategies() {
  std::vector<Declaration> all = {default_declaration(), one_device_declaration()};
  for_each_strategy_folder([&](auto folder) {
    for (Declaration& each : decltype(folder)::declarations()) all.push_back(std::move(each));
  });
  return all;
}

}  // namespace rondo
