#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rondo {

// One rank's entry of memory.json: its peak, when it was and what it consisted of.
struct MemoryPeakRecord {
  struct Unit {
    std::string name;
    std::vector<std::pair<std::string, std::uint64_t>> categories;
  };
  int rank = 0;
  std::uint64_t bytes = 0;
  std::int64_t step = 0;
  std::string phase = {};
  std::string unit = {};
  std::vector<Unit> units = {};
};

// Reads RUN/memory.json, by rank. Throws DataError for a file that is damaged.
std::vector<MemoryPeakRecord> read_memory_peaks(const std::filesystem::path& path);

}  // namespace rondo
