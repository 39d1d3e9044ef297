#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

// What a manifest remembers of a tensor, to tell which one is damaged.
struct TensorRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-128 of its elements
};

// What a manifest remembers of a file.
struct FileRecord {
  std::string name;  // relative to the checkpoint directory
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-128 of the whole file
  std::vector<TensorRecord> tensors;
  // XXH3-128 of what stands before the first tensor; empty where it is not known. With those of the tensors
  // it covers the file, so that several threads can compare one.
  std::string header_checksum = {};
};

}  // namespace rondo
