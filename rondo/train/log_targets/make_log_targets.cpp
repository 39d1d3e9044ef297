#include <algorithm>

#include "rondo/train/callback.h"
#include "rondo/train/log_targets/log_targets.h"

namespace rondo {

std::vector<LogTarget> make_log_targets(const std::vector<std::string>& names, const OptionValues& values,
                                        const LoggedRun& run) {
  std::vector<LogTarget> targets;
  for_each_log_target([&](auto target) {
    using Target = decltype(target);
    const Declaration declared = Target::declaration();
    if (std::find(names.begin(), names.end(), declared.name) == names.end()) return;
    typename Target::Options options;
    for (const auto& [name, value] : values) {
      if (const Option* const option = declared.options.find(name)) option->read(&options, value);
    }
    targets.push_back(Target::make(options, run));
  });
  return targets;
}

}  // namespace rondo
