// Implementation for builds without libjpeg.
#include "rondo/base/error.h"
#include "rondo/data/image/decode.h"

namespace rondo {

DecodedPart decode_jpeg(std::span<const std::uint8_t> /*file*/, const DecodeRequest& /*request*/) {
  throw UsageError(
      "this rondo was built without libjpeg and reads no JPEG files; on Debian or Ubuntu: apt-get install "
      "libjpeg-dev, then configure and build again");
}

}  // namespace rondo
