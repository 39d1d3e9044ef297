#include "rondo/cost/strategy.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::cost {

std::string_view name(Strategy strategy) {
  switch (strategy) {
    case Strategy::ddp:
      return "ddp";
    case Strategy::zero1:
      return "zero1";
    case Strategy::zero2:
      return "zero2";
    case Strategy::zero3:
      return "zero3";
    case Strategy::zero3_keep:
      return "zero3_keep";
  }
  return "";
}

Strategy parse_strategy(std::string_view text, std::string_view what) {
  std::string names;
  for (const Strategy strategy : kStrategies) {
    if (text == name(strategy)) return strategy;
    names += str(names.empty() ? "" : ", ", name(strategy));
  }
  if (text == "fsdp") return Strategy::zero3;
  throw UsageError(str(what, ": '", text, "' is not one of ", names));
}

std::string describe(UnitChoice choice) {
  return str(name(choice.strategy), choice.checkpoint ? " + checkpoint" : "");
}

}  // namespace rondo::cost
