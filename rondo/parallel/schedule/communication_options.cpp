#include "rondo/parallel/schedule/communication_options.h"

namespace rondo {

OptionsOf<CommunicationOptions> communication_options() {
  using Options = CommunicationOptions;
  OptionsOf<Options> table;
  table.begin_group("Communication between hosts");
  table.add("comm-schedule", &Options::schedule, "Which block goes first", one_of(policy_names()));
  table.add("comm-seed", &Options::schedule_seed, "Of a random order", zero_or_more()).needs =
      OptionNeed{"comm-schedule", {"random"}};
  table.add("block-size", &Options::block_bytes, "Bytes of a unit that travel at a time; 0 is whole units");
  table.add("in-flight-bytes", &Options::in_flight_bytes, "Bytes under way at a time; 0 is no limit");
  table.add("fuse-bytes", &Options::fuse_bytes, "Units that are together no larger travel as one; 0 is none");
  table.add("prefetch", &Options::prefetch, "Units gathered ahead of their use, also on one host",
            zero_or_more());
  table.without_flags({"comm-schedule", "comm-seed", "block-size", "in-flight-bytes", "fuse-bytes"});
  return table;
}

std::vector<std::string> policy_names() { return {"fifo", "priority", "random"}; }

}  // namespace rondo
