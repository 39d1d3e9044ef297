#include "rondo/strategy/one_device_options.h"

namespace rondo {

Declaration one_device_declaration() {
  return {.name = "one_device",
          .summary = "one process, one device, no communication",
          .on_several_processes = "use ddp"};
}

Declaration default_declaration() {
  return {.name = "default",
          .summary = "the strategy outside of every scope, whose operations have no effect",
          .on_several_processes = "use ddp"};
}

}  // namespace rondo
