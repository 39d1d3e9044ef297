#include "rondo/data/image/decode.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// A header of a few bytes must not decide that gigabytes are taken.
constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 27;

}  // namespace

void check_image_size(std::uint64_t width, std::uint64_t height) {
  if (width == 0 || height == 0 || width > kMostPixels / height)
    throw DataError(str("the image has ", width, " x ", height, " pixels, expected 1 to ", kMostPixels));
}

DecodedPart decode_image(std::span<const std::uint8_t> file, const DecodeRequest& request) {
  if (file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff)
    return decode_jpeg(file, request);
  if (file.size() >= 4 && file[0] == 0x89 && file[1] == 'P' && file[2] == 'N' && file[3] == 'G')
    return decode_png(file, request);
  throw DataError(str("of ", file.size(), " bytes that begin neither as a JPEG nor as a PNG file"));
}

}  // namespace rondo
