#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <vector>

#include "rondo/channel/shared_store.h"

namespace rondo::tests {

// Calls `body` with a store and every rank below `ranks`, each in a process of its own, and `watch`, where
// given, with each rank and its process meanwhile. Returns how many ended otherwise than well: killed, by an
// exception, with a failed expectation, or not within five minutes.
inline int run_rank_processes(int ranks, const std::function<void(Store&, int rank)>& body,
                              const std::function<void(int rank, pid_t process)>& watch = {}) {
  const auto store = SharedStore::create();
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(300);
      try {
        body(*store, rank);
      } catch (const std::exception& e) {
        fprintf(stderr, "rank %d: %s\n", rank, e.what());
        _exit(1);
      }
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (int rank = 0; watch && rank < ranks; ++rank) watch(rank, children[static_cast<std::size_t>(rank)]);
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++failed;
  }
  return failed;
}

}  // namespace rondo::tests
