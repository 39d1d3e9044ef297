#include "apps/bench/collectives/sizes.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::bench {

std::vector<Bytes> parse_sizes(const std::string& text) {
  std::vector<Bytes> sizes;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dots = part.find("..");
    if (dots == std::string::npos) {
      sizes.push_back(parse_bytes(part, "--sizes"));
      continue;
    }
    const Bytes first = parse_bytes(part.substr(0, dots), "--sizes");
    const Bytes last = parse_bytes(part.substr(dots + 2), "--sizes");
    if (first.count == 0 || first > last) {
      throw UsageError(str("--sizes: '", part, "' is no range; write for example 4B..64MiB"));
    }
    for (Bytes size = first; size < last; size.count *= 4) sizes.push_back(size);
    sizes.push_back(last);
  }
  if (sizes.empty()) throw UsageError("--sizes: is empty; write for example 4B..64MiB or 4B,64KiB,25MiB");
  if (std::any_of(sizes.begin(), sizes.end(), [](Bytes size) { return size.count == 0 || size > GiB(4); })) {
    throw UsageError(str("--sizes: '", text, "' has a size that is not between 1 B and 4 GiB"));
  }
  return sizes;
}

}  // namespace rondo::bench
