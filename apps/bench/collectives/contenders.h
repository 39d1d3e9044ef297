#pragma once

#include <memory>
#include <vector>

#include "apps/bench/collectives/contender.h"
#include "apps/bench/collectives/settings.h"
#include "rondo/backend/group.h"
#include "rondo/channel/thread_channel.h"

namespace rondo::bench {

// Everybody who takes part, by the settings: this rank's end of each. Collective over `world`. `mesh` is null
// where ranks are processes.
std::vector<std::unique_ptr<Contender>> make_contenders(const CollectivesSettings& settings,
                                                        const Group& world, const ThreadMesh* mesh);

}  // namespace rondo::bench
