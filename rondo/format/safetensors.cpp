#include "rondo/format/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian and mapped as it is");

namespace rondo {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view safetensors;
  std::string_view name;
  std::size_t size;
};

// In the order of the enumeration, so that a dtype is its own index.
constexpr std::array<DtypeRow, 16> rows{{
    {Dtype::boolean, "BOOL", "bool", 1},
    {Dtype::uint8, "U8", "uint8", 1},
    {Dtype::int8, "I8", "int8", 1},
    {Dtype::float8_e4m3, "F8_E4M3", "float8_e4m3", 1},
    {Dtype::float8_e5m2, "F8_E5M2", "float8_e5m2", 1},
    {Dtype::int16, "I16", "int16", 2},
    {Dtype::uint16, "U16", "uint16", 2},
    {Dtype::float16, "F16", "float16", 2},
    {Dtype::bfloat16, "BF16", "bfloat16", 2},
    {Dtype::int32, "I32", "int32", 4},
    {Dtype::uint32, "U32", "uint32", 4},
    {Dtype::float32, "F32", "float32", 4},
    {Dtype::int64, "I64", "int64", 8},
    {Dtype::uint64, "U64", "uint64", 8},
    {Dtype::float64, "F64", "float64", 8},
    {Dtype::complex64, "C64", "complex64", 8},
}};

const DtypeRow& row(Dtype dtype) { return rows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view safetensors_name(Dtype dtype) { return row(dtype).safetensors; }
std::string_view to_string(Dtype dtype) { return row(dtype).name; }
std::size_t element_size(Dtype dtype) { return row(dtype).size; }

std::optional<Dtype> dtype_from_safetensors(std::string_view name) {
  for (const DtypeRow& r : rows) {
    if (r.safetensors == name) return r.dtype;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape) {
  std::int64_t bytes = static_cast<std::int64_t>(element_size(dtype));
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes);
}

namespace {

using Json = nlohmann::ordered_json;
constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t largest_header = 100'000'000;
constexpr std::string_view metadata_key = "__metadata__";

std::vector<std::int64_t> parse_shape(const Json& value, const std::string& where) {
  if (!value.is_array()) throw DataError(str(where, ": shape is not a list"));
  std::vector<std::int64_t> shape;
  for (const Json& extent : value) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > INT64_MAX) {
      throw DataError(str(where, ": shape ", printable(value.dump()),
                          " holds something that is not a whole number >= 0"));
    }
    shape.push_back(extent.get<std::int64_t>());
  }
  return shape;
}

TensorEntry parse_entry(const std::string& name, const Json& value, const std::string& file) {
  const std::string where = str(file, ": tensor '", printable(name), "'");
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    throw DataError(str(where, ": expected an object of exactly dtype, shape and data_offsets"));
  }
  const auto dtype =
      value["dtype"].is_string() ? dtype_from_safetensors(value["dtype"].get<std::string>()) : std::nullopt;
  if (!dtype) throw DataError(str(where, ": unknown dtype ", printable(value["dtype"].dump())));
  TensorEntry entry{name, *dtype, parse_shape(value["shape"], where)};
  const Json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    throw DataError(str(where, ": data_offsets ", printable(offsets.dump()), " is not a pair of offsets"));
  }
  entry.begin = offsets[0].get<std::uint64_t>();
  entry.end = offsets[1].get<std::uint64_t>();
  const auto bytes = tensor_bytes(entry.dtype, entry.shape);
  if (entry.begin > entry.end || !bytes || *bytes != entry.bytes()) {
    throw DataError(str(where, ": ", describe(entry.dtype, entry.shape), " needs ",
                        bytes ? str(*bytes) : std::string("more than 2^63"), " bytes, its offsets are [",
                        entry.begin, ", ", entry.end, ")"));
  }
  return entry;
}

std::map<std::string, std::string> parse_metadata(const Json& value, const std::string& file) {
  if (!value.is_object()) throw DataError(str(file, ": __metadata__ is not an object"));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw DataError(str(file, ": __metadata__ entry '", key, "' is not a string"));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// Checks that the tensors, sorted by offset, cover the data section without gaps or overlaps.
void check_tiling(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes,
                  const std::string& file) {
  std::uint64_t expected = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != expected) {
      throw DataError(str(file, ": tensor '", printable(tensor.name), "' starts at data offset ",
                          tensor.begin,
                          tensor.begin < expected ? ", inside the tensor before it" : ", after a hole",
                          "; expected ", expected));
    }
    expected = tensor.end;
  }
  if (expected != data_bytes) {
    throw DataError(str(file, ": the header describes ", expected, " bytes of data, the file holds ",
                        data_bytes, expected > data_bytes ? " (truncated?)" : ""));
  }
}

// Returns the header's length and the header.
std::string header_bytes_of(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[std::string(metadata_key)] = header.metadata;
  for (const TensorEntry& tensor : header.tensors) {
    Json entry = Json::object();
    entry["dtype"] = safetensors_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {tensor.begin, tensor.end};
    // Names are unique; assignment by name would search all earlier members of the ordered object.
    Json::object_t::Container& members = json.get_ref<Json::object_t&>();
    members.emplace_back(tensor.name, std::move(entry));
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data section
  const std::uint64_t header_bytes = text.size();
  return std::string(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes) + text;
}

}  // namespace

std::string describe(Dtype dtype, std::span<const std::int64_t> shape) {
  return str(to_string(dtype), "[", join(shape, ", "), "]");
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> content, const std::string& file) {
  if (content.size() < length_bytes) {
    throw DataError(
        str(file, ": ", content.size(), " bytes, expected at least the 8 bytes of a header length"));
  }
  std::uint64_t header_bytes = 0;
  std::copy_n(content.begin(), length_bytes, reinterpret_cast<std::byte*>(&header_bytes));
  if (header_bytes > largest_header) {
    throw DataError(str(file, ": header length at offset 0 is ", header_bytes, ", expected at most ",
                        largest_header, " (is this a safetensors file?)"));
  }
  if (header_bytes > content.size() - length_bytes) {
    throw DataError(str(file, ": the header needs ", header_bytes, " bytes from offset 8, the file holds ",
                        content.size() - length_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(content.data()) + length_bytes, header_bytes);
  if (text.empty() || text.front() != '{') throw DataError(str(file, ": offset 8: expected '{'"));
  const Json json = parse_json_strict(text, str(file, ": header (from offset 8)"));

  SafetensorsHeader header;
  header.data_offset = length_bytes + header_bytes;
  for (const auto& [name, value] : json.items()) {
    if (name == metadata_key) {
      header.metadata = parse_metadata(value, file);
    } else {
      header.tensors.push_back(parse_entry(name, value, file));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  check_tiling(header.tensors, content.size() - header.data_offset, file);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : SafetensorsFile(std::make_shared<const MappedFile>(path)) {}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const MappedFile> file)
    : file_(std::move(file)), header_(parse_safetensors(file_->bytes(), file_->path().string())) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::data(const TensorEntry& tensor) const {
  return file_->bytes().subspan(header_.data_offset + tensor.begin, tensor.bytes());
}

std::string safetensors_header(const std::vector<TensorSpec>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  return header_bytes_of({safetensors_order(tensors), metadata, 0});
}

std::vector<TensorEntry> safetensors_order(const std::vector<TensorSpec>& tensors) {
  std::vector<TensorEntry> order;
  std::set<std::string_view> names;
  for (const TensorSpec& spec : tensors) {
    if (spec.name == metadata_key || !names.insert(spec.name).second) {
      throw UsageError(str("tensor name '", spec.name, "' is ",
                           spec.name == metadata_key ? "reserved by safetensors" : "given twice"));
    }
    const auto bytes = tensor_bytes(spec.dtype, spec.shape);
    if (!bytes) throw UsageError(str("tensor '", spec.name, "' has shape [", join(spec.shape, ", "), "]"));
    order.push_back({spec.name, spec.dtype, spec.shape, 0, *bytes});
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return element_size(a.dtype) > element_size(b.dtype);
  });
  std::uint64_t offset = 0;
  for (TensorEntry& tensor : order) {
    tensor.begin += offset;
    offset = tensor.end += offset;
  }
  return order;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path, OutputFile::Mode::create), header_{safetensors_order(tensors), metadata, 0} {
  const std::string text = header_bytes_of(header_);
  if (text.size() > largest_header + length_bytes) {
    throw UsageError(str(path.string(), ": ", tensors.size(), " tensors need a header of ", text.size(),
                         " bytes, the format allows ", largest_header));
  }
  header_.data_offset = text.size();
  header_checksum_ = checksum_hex(as_bytes(text));
  file_.reserve({header_.data_offset + (header_.tensors.empty() ? 0 : header_.tensors.back().end)});
  file_checksum_.update(as_bytes(text));
  file_.write(text);
  close_finished_tensors();
}

// Advances past every complete tensor; tensors without elements never get a write().
void SafetensorsWriter::close_finished_tensors() {
  while (current_ < order().size() && current_bytes_ == order()[current_].bytes()) {
    records_.push_back({order()[current_].name, current_bytes_, tensor_checksum_.hex()});
    tensor_checksum_ = Checksum();
    current_bytes_ = 0;
    ++current_;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data) {
  if (data.empty()) return;
  if (current_ == order().size() || order()[current_].name != name ||
      data.size() > order()[current_].bytes() - current_bytes_) {
    throw UsageError(
        str(file_.path().string(), ": ", data.size(), " bytes of tensor '", name, "' do not fit here; ",
            current_ == order().size() ? std::string("the file is complete")
                                       : str("expected up to ", order()[current_].bytes() - current_bytes_,
                                             " bytes of '", order()[current_].name, "'")));
  }
  checksums_.begin(data, file_checksum_, tensor_checksum_);
  try {
    file_.write(data);
  } catch (...) {
    checksums_.wait();
    throw;
  }
  checksums_.wait();
  current_bytes_ += data.size();
  close_finished_tensors();
}

SafetensorsWriter::Unsynced SafetensorsWriter::finish_unsynced() {
  if (current_ < order().size()) {
    throw UsageError(str(file_.path().string(), ": tensor '", order()[current_].name, "' has ",
                         current_bytes_, " of ", order()[current_].bytes(), " bytes"));
  }
  FileRecord record{file_.path().filename().string(), file_.written(), file_checksum_.hex(),
                    std::move(records_), header_checksum_};
  return {std::move(record), std::move(file_)};
}

FileRecord SafetensorsWriter::finish() {
  Unsynced finished = finish_unsynced();
  finished.file.sync();
  finished.file.close();
  return std::move(finished.record);
}

}  // namespace rondo
