#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "rondo/checkpoint/tensor_source.h"
#include "rondo/format/checkpoint_directory.h"

namespace rondo {

// Writes tensors into a checkpoint so that the next one need not write again what has not changed (frozen
// weights, experts without samples): a large tensor has a file of its own, and where the newest checkpoint of
// the root has the same tensor with the same elements, that file becomes a hard link to the older one's.
// Files are never changed after they were written, so each checkpoint stays complete when the others are
// deleted. The directory has the form of one in parts, and every reader reads it.
class IncrementalWriter {
 public:
  // `writer` outlives this object. A newest checkpoint that is damaged, or was not saved so, gives nothing to
  // link.
  IncrementalWriter(CheckpointWriter& writer, const std::filesystem::path& root);

  // The files of one kind ("model", "optimizer"). The sources are made one after the other: order_in_file().
  // Throws Error.
  void write(const std::string& kind, const TensorSources& sources);

 private:
  bool link(const std::string& kind, const TensorSpec& spec, const std::string& file_name,
            const std::string& checksum);

  CheckpointWriter& writer_;
  // Files of the newest checkpoint with one tensor, by kind and tensor, with what its manifest says of them.
  std::map<std::pair<std::string, std::string>, std::pair<std::filesystem::path, FileRecord>> older_;
};

}  // namespace rondo
