#include "rondo/parallel/schedule/communication_options.h"

namespace rondo {

OptionsOf<CommunicationOptions> communication_options() {
  using Options = CommunicationOptions;
  OptionsOf<Options> table;
  table.begin_group("Communication between hosts");
  table.add("comm-schedule", &Options::schedule, "Order in which segments are sent", one_of(policy_names()));
  table.add("comm-seed", &Options::schedule_seed, "Seed of a random order", zero_or_more()).needs =
      OptionNeed{"comm-schedule", {"random"}};
  table.add("segment-size", &Options::segment_bytes, "Size of the segments that are sent; 0: whole units");
  table.add("in-flight-bytes", &Options::in_flight_bytes, "Maximum bytes in flight; 0: no limit");
  table.add("fuse-bytes", &Options::fuse_bytes, "Fuse units up to this total size; 0: none");
  table.add("prefetch", &Options::prefetch, "Units to gather ahead of their use, also on one host",
            zero_or_more());
  table.without_flags({"comm-schedule", "comm-seed", "segment-size", "in-flight-bytes", "fuse-bytes"});
  return table;
}

std::vector<std::string> policy_names() { return {"fifo", "priority", "random"}; }

}  // namespace rondo
