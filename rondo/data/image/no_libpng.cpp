// Implementation for builds without libpng.
#include "rondo/base/error.h"
#include "rondo/data/image/decode.h"

namespace rondo {

DecodedPart decode_png(std::span<const std::uint8_t> /*file*/, const DecodeRequest& /*request*/) {
  throw UsageError(
      "this rondo was built without libpng and reads no PNG files; on Debian or Ubuntu: apt-get install "
      "libpng-dev, then configure and build again");
}

}  // namespace rondo
