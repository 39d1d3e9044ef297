#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/store.h"
#include "rondo/channel/thread_channel.h"
#include "tests/rank_threads.h"

namespace rondo::tests {

// Runs `body` on ranks that are threads, each with its channel of `kind` ("threads" or "shm"), which it may
// destroy. Rethrows the first exception.
inline void run_channels(const std::string& kind, int ranks,
                         const std::function<void(std::unique_ptr<Channel>&)>& body) {
  const ThreadMesh mesh(ranks);
  MemoryStore store;
  run_rank_threads(ranks, [&](int rank) {
    std::unique_ptr<Channel> channel = mesh.connect(rank);
    if (kind == "shm") {
      channel = std::make_unique<SharedMemoryChannel>(
          store, SharedMemoryChannel::Options{"test", rank, ranks, std::chrono::seconds(60)});
    }
    body(channel);
  });
}

}  // namespace rondo::tests
