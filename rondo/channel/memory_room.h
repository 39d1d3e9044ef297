#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "rondo/base/bytes.h"

namespace rondo {

// How much more memory this process can touch before the kernel ends it.
struct MemoryRoom {
  Bytes bytes{~std::uint64_t{0}};
  std::string limit;  // what stands in the way, for people: "the memory limit of cgroup /jobs/7, 512.0 MiB"
};

// The least that the memory control groups of this process (versions 1 and 2, up to the root) and the system
// leave; page cache that can be dropped and swap count as room. Groups that cannot be seen do not count.
// `root` is where /proc and /sys are.
MemoryRoom memory_room(const std::filesystem::path& root = "/");

// Throws Error that names what is needed, what there is, and how to raise it, when `room` is less than
// `size`. `what` is what it is for: "the shared memory of group 'world'". A kernel that is out of memory does
// not refuse, it kills: so this looks first. Other processes may still take what was there.
void require_room(Bytes size, const std::string& what, const MemoryRoom& room = memory_room());

}  // namespace rondo
