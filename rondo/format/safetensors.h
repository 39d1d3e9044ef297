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

// Element types that files of tensors carry: those of safetensors that libtorch has too.
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

// Name in a safetensors header: "F32", "BF16", "I64", "BOOL".
std::string_view safetensors_name(Dtype dtype);
// Name in rondo's flags, JSON and messages: "float32", "bfloat16", "int64", "bool".
std::string_view to_string(Dtype dtype);
// Bytes of one element.
std::size_t element_size(Dtype dtype);
// Empty when rondo does not know `name`.
std::optional<Dtype> dtype_from_safetensors(std::string_view name);

// Bytes of a dense tensor of this shape; empty when the product does not fit 63 bits.
std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape);

// The safetensors format (github.com/huggingface/safetensors): 8 bytes little-endian header length N, N bytes
// of JSON {name: {dtype, shape, data_offsets}}, then the tensors' elements, row-major and little-endian,
// without a gap.

// What a tensor is, before it has a place in a file.
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

// "float32[2, 3]"
std::string describe(Dtype dtype, std::span<const std::int64_t> shape);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             // in file order
  std::map<std::string, std::string> metadata;  // the optional `__metadata__`
  std::uint64_t data_offset = 0;                // where the data section starts in the file
};

// Reads and checks the header of a whole file held in memory: header at most 100 MB and inside the file,
// valid JSON without duplicate keys, known dtypes, shapes that agree with the offsets, no overlap, no hole,
// nothing behind the last tensor. Throws DataError that names `file`, the offset or tensor, and what was
// expected.
SafetensorsHeader parse_safetensors(std::span<const std::byte> content, const std::string& file);

// A safetensors file mapped into memory; opening checks the header as above and reads no tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  // Of a file that is mapped already.
  explicit SafetensorsFile(std::shared_ptr<const MappedFile> file);

  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Null when there is none of that name.
  const TensorEntry* find(std::string_view name) const;
  // The elements; valid as long as this object.
  std::span<const std::byte> data(const TensorEntry& tensor) const;
  const std::filesystem::path& path() const { return file_->path(); }

 private:
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

// The tensors in the order in which SafetensorsWriter writes them: by element size, largest first, so that
// every one is aligned in the mapped file. Throws UsageError for a duplicate or reserved name or a shape with
// a negative extent.
std::vector<TensorEntry> safetensors_order(const std::vector<TensorSpec>& tensors);

// What stands before the tensors in a file of SafetensorsWriter: the header's length and the header.
std::string safetensors_header(const std::vector<TensorSpec>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// Writes a safetensors file tensor by tensor, holding none of them; order() says in which order write() wants
// them. While a large tensor is written, another thread computes its checksums.
class SafetensorsWriter {
 public:
  // Creates the file (it must not exist) and writes the header. Throws UsageError as safetensors_order(),
  // Error when the file cannot be written.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  const std::vector<TensorEntry>& order() const { return header_.tensors; }
  // The next bytes of tensor `name`, which must be the first one not complete yet; one tensor may come in
  // pieces.
  void write(std::string_view name, std::span<const std::byte> data);
  // Checks that every tensor is complete, syncs and closes the file. Returns its size and checksums.
  FileRecord finish();
  // The same without sync: the file that is still to be synced and closed. Several that are written one after
  // the other and synced at the end keep the disk busy.
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
  std::uint64_t current_bytes_ = 0;  // already written of it
  std::vector<TensorRecord> records_;
  std::string header_checksum_;
  ChecksumThread checksums_;
};

}  // namespace rondo
