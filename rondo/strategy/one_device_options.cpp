#include "rondo/strategy/one_device_options.h"

namespace rondo {

Declaration one_device_declaration() {
  return {.name = "one_device",
          .summary = "one process, one device, no communication",
          .on_several_processes = "use ddp"};
}

Declaration default_declaration() {
  return {.name = "default",
          .summary = "no operation of a strategy does anything, as outside of every scope",
          .on_several_processes = "use ddp"};
}

}  // namespace rondo
