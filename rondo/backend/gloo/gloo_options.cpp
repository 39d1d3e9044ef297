#include "rondo/backend/gloo/gloo_options.h"

namespace rondo {

Declaration GlooFolder::declaration() { return {.name = "gloo", .summary = "Gloo over TCP, between hosts"}; }

}  // namespace rondo
