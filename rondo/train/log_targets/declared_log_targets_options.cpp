#include "rondo/train/log_targets/log_targets.h"

namespace rondo {

std::vector<Declaration> declared_log_targets() {
  std::vector<Declaration> all;
  for_each_log_target([&](auto target) { all.push_back(decltype(target)::declaration()); });
  return all;
}

}  // namespace rondo
