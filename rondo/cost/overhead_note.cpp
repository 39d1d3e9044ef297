#include "rondo/cost/overhead_note.h"

#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo::cost {

std::optional<std::string> overhead_note(const Profile& profile, int micro_batches) {
  if (micro_batches <= 1 || profile.overhead_s <= 0) return {};
  const auto text = [](double seconds) {
    return to_string(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
  };
  return str("what a step computes besides its units (overhead_s, ", text(profile.overhead_s),
             ") is counted once; with ", micro_batches,
             " micro-batches a step has a part of it once for each, so that it may take up to ",
             text(profile.overhead_s * (micro_batches - 1)), " longer than predicted");
}

}  // namespace rondo::cost
