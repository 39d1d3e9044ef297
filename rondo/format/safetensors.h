#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/format/checksum.h"
#include "rondo/format/file.h"

namespace rondo {

// Element types of tensor files: the types of safetensors that libtorch has too.
enum class Dtype {
  boolean,
  uint8,
  int8,
  float8_e4m3,
  float8_e5m2,
  int16,
  uint16,
  float16,
  bfloat16,
  int32,
  uint32,
  float32,
  int64,
  uint64,
  float64,
  complex64,
};

// Returns the name in a safetensors header: "F32", "BF16", "I64", "BOOL".
std::string_view safetensors_name(Dtype dtype);
// Returns the name in rondo's flags, JSON and messages: "float32", "bfloat16", "int64", "bool".
std::string_view to_string(Dtype dtype);
// Returns the bytes of one element.
std::size_t element_size(Dtype dtype);
// Parses a name of a safetensors header; empty if rondo does not support it.
std::optional<Dtype> dtype_from_safetensors(std::string_view name);

// Returns the bytes of a dense tensor of this shape; empty if the product does not fit 63 bits.
std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape);

// The safetensors format (github.com/huggingface/safetensors): 8 bytes little-endian header length N, N bytes
// of JSON {name: {dtype, shape, data_offsets}}, then the tensors' elements, row-major and little-endian,
// without gaps.

// Description of a tensor before it has a position in a file.
struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::float32;
  std::vector<std::int64_t> shape;
};

// A tensor in a file: its elements are the bytes [begin, end) of the data section.
struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::float32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

// Returns a text such as "float32[2, 3]".
std::string describe(Dtype dtype, std::span<const std::int64_t> shape);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in file order
  std::map<std::string, std::string> metadata;  // the optional `__metadata__`
  std::uint64_t data_offset = 0;                // start of the data section in the file
};

// Parses and checks the header of a whole file in memory. The header must be at most 100 MB and inside the
// file, valid JSON without duplicate keys, with known dtypes and shapes that match the offsets. The tensors
// must cover the data section without overlap, gap or trailing bytes. Throws DataError that names `file`, the
// offset or tensor, and the expectation.
SafetensorsHeader parse_safetensors(std::span<const std::byte> content, const std::string& file);

// A safetensors file mapped into memory. Opening checks the header like parse_safetensors() and reads no
// tensors.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  // Uses a file that is already mapped.
  explicit SafetensorsFile(std::shared_ptr<const MappedFile> file);

  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Returns the tensor of that name; null if there is none.
  const TensorEntry* find(std::string_view name) const;
  // Returns the elements; valid as long as this object.
  std::span<const std::byte> data(const TensorEntry& tensor) const;
  const std::filesystem::path& path() const { return file_->path(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

// Returns the tensors in the order of SafetensorsWriter: by element size, largest first, so that all are
// aligned in the mapped file. Throws UsageError for a duplicate or reserved name or a shape with a negative
// extent.
std::vector<TensorEntry> safetensors_order(const std::vector<TensorSpec>& tensors);

// Returns the bytes before the tensors in a file of SafetensorsWriter: the header's length and the header.
std::string safetensors_header(const std::vector<TensorSpec>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// A writer of safetensors files that writes tensors one at a time without keeping them. write() must be
// called in the order of order(). A second thread computes the checksums of large tensors meanwhile.
class SafetensorsWriter {
 public:
  // Creates the file, which must not exist, and writes the header. Throws UsageError like
  // safetensors_order(), and Error if the file cannot be written.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  const std::vector<TensorEntry>& order() const { return header_.tensors; }
  // Writes the next bytes of tensor `name`, which must be the first incomplete one. A tensor may be written
  // in several pieces.
  void write(std::string_view name, std::span<const std::byte> data);
  // Checks that every tensor is complete, syncs and closes the file. Returns its size and checksums.
  FileRecord finish();
  // Result of finish_unsynced(): like finish(), but the file is not synced and closed yet. Writing several
  // files one after another and syncing them at the end keeps the disk busy.
  struct Unsynced {
    FileRecord record;
    OutputFile file;
  };
  Unsynced finish_unsynced();

 private:
  void close_finished_tensors();

  OutputFile file_;
  SafetensorsHeader header_;
  Checksum file_checksum_;
  Checksum tensor_checksum_;
  std::size_t current_ = 0;          // index into order()
  std::uint64_t current_bytes_ = 0;  // number of its bytes that were written
  std::vector<TensorRecord> records_;
  std::string header_checksum_;
  ChecksumThread checksums_;
};

}  // namespace rondo
