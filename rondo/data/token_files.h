#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/data/mapped_input.h"
#include "rondo/data/open.h"
#include "rondo/data/token_options.h"
#include "rondo/data/token_windows.h"

namespace rondo {

// Files of tokens (uint16 or uint32, little-endian, without a header: what `rondo tokenize`, nanoGPT and
// Megatron's .bin hold) read as one long run. They are mapped: a corpus may be larger than memory, and the
// ranks of a host share it.
class TokenFiles final : public TokenSource {
 public:
  // Throws DataError for a file that cannot be read, ends within a token, is plainly of wider tokens, or has
  // a token beyond the vocabulary among its first 65,536, and when all are empty.
  TokenFiles(const std::vector<std::string>& paths, const std::string& type, std::int64_t vocabulary);
  std::int64_t size() const override { return starts_.back(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void read(std::int64_t offset, std::span<std::int64_t> tokens) const override;
  std::vector<std::int64_t> file_starts() const override { return starts_; }

 private:
  std::vector<MappedInput> files_;
  std::vector<std::int64_t> starts_;  // of each file, in tokens, and the end of the last
  std::size_t width_;                 // bytes of a token
  std::int64_t vocabulary_;
};

}  // namespace rondo
