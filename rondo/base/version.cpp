#include "rondo/base/version.h"

namespace rondo {

const char* const kVersion = RONDO_VERSION;

}  // namespace rondo
