#include "rondo/data/idx.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/images.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

struct Pair {
  std::string images;
  std::string labels;
};

// The pair named `part` ("train", "t10k") in `directory`, if its images are there.
std::optional<Pair> find_pair(const fs::path& directory, const std::string& part) {
  for (const char* separator : {"-", "."}) {
    const fs::path images = directory / (part + "-images" + separator + "idx3-ubyte");
    if (fs::exists(images)) {
      return Pair{images.string(), (directory / (part + "-labels" + separator + "idx1-ubyte")).string()};
    }
    if (fs::path packed = images.string() + ".gz"; fs::exists(packed)) {
      throw DataError(str("'", packed.string(),
                          "' is compressed, expected plain IDX files; unpack them: gunzip ",
                          (directory / "*.gz").string()));
    }
  }
  return std::nullopt;
}

std::string labels_beside(const std::string& images) {
  const fs::path path(images);
  std::string name = path.filename().string();
  const auto replace = [&name](const std::string& from, const std::string& to) {
    const std::size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
    return at != std::string::npos;
  };
  if (!replace("images", "labels")) {
    throw DataError(str("'", images,
                        "': cannot tell which file has its labels, expected 'images' in the name (and a "
                        "file with 'labels' and idx1 in its place)"));
  }
  replace("idx3", "idx1");
  return (path.parent_path() / name).string();
}

struct Part {
  ImageRecords records;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

Part read_pair(const Pair& pair) {
  const auto images = std::make_shared<const MappedInput>(pair.images);
  const auto labels = std::make_shared<const MappedInput>(pair.labels);
  const IdxView image_view = parse_idx(images->bytes(), pair.images, 3);
  const IdxView label_view = parse_idx(labels->bytes(), pair.labels, 1);
  if (image_view.shape[0] != label_view.shape[0]) {
    throw DataError(str("'", pair.labels, "', offset 4: ", label_view.shape[0], " labels, expected ",
                        image_view.shape[0], ", one for each image of '", pair.images, "'"));
  }
  Part part{.records = {}, .height = image_view.shape[1], .width = image_view.shape[2]};
  part.records.files = {images};
  part.records.labels.assign(label_view.values.begin(), label_view.values.end());
  const auto stride = static_cast<std::size_t>(part.height * part.width);
  for (std::size_t i = 0; i < part.records.labels.size(); ++i) {
    part.records.pixels.push_back(image_view.values.data() + i * stride);
  }
  return part;
}

std::int64_t largest_label(const Part& part) {
  return *std::max_element(part.records.labels.begin(), part.records.labels.end());
}

OpenedData open_idx(const std::string& path, const DataOptions& options) {
  Pair train_files;
  std::optional<Pair> test_files;
  if (fs::is_directory(path)) {
    const std::optional<Pair> found = find_pair(path, "train");
    if (!found) {
      throw DataError(
          str("'", path, "' has no train-images-idx3-ubyte, expected MNIST's file names in a directory"));
    }
    train_files = *found;
    test_files = find_pair(path, "t10k");
  } else {
    MappedInput probe(path);  // a missing file is named before its labels are looked for
    train_files = {path, labels_beside(path)};
  }
  Part train = read_pair(train_files);
  std::optional<Part> test;
  if (test_files) test = read_pair(*test_files);
  if (test && (test->height != train.height || test->width != train.width)) {
    throw DataError(str("'", test_files->images, "', offset 8: images of ", test->height, "x", test->width,
                        ", expected ", train.height, "x", train.width, " as in '", train_files.images, "'"));
  }
  const std::int64_t classes = std::max(largest_label(train), test ? largest_label(*test) : 0) + 1;
  const DatasetInfo info{
      .kind = "idx", .source = path, .input_shape = {1, train.height, train.width}, .classes = classes};
  std::shared_ptr<const Dataset> test_set;
  if (test) test_set = std::make_shared<ImageDataset>(std::move(test->records), info);
  return open_images(std::make_shared<ImageDataset>(std::move(train.records), info), std::move(test_set),
                     options);
}

bool detect_idx(const std::string& path) {
  if (fs::is_directory(path)) return find_pair(path, "train").has_value();
  const MappedInput file(path);
  const std::span<const std::uint8_t> bytes = file.bytes();
  return bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0 && bytes[2] >= 0x08 && bytes[2] <= 0x0e &&
         bytes[3] >= 1 && bytes[3] <= 4;
}

}  // namespace

IdxView parse_idx(std::span<const std::uint8_t> file, const std::string& path, int dimensions) {
  const auto fail = [&path](std::size_t offset, const auto&... parts) {
    throw DataError(str("'", path, "', offset ", offset, ": ", parts...));
  };
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(dimensions);
  if (file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b) {
    fail(0, "the file is compressed, expected plain IDX; unpack it: gunzip ", path);
  }
  if (file.size() < header) {
    fail(file.size(), "the file ends here, expected an IDX header of ", header, " bytes");
  }
  if (file[0] != 0 || file[1] != 0)
    fail(0, "bytes ", int{file[0]}, " ", int{file[1]}, ", expected 0 0 (IDX)");
  if (file[2] != 0x08) fail(2, "value type ", int{file[2]}, ", expected 8 (bytes)");
  if (file[3] != dimensions) fail(3, int{file[3]}, " dimensions, expected ", dimensions);
  IdxView view;
  std::uint64_t values = 1;
  for (int i = 0; i < dimensions; ++i) {
    const std::size_t at = 4 + 4 * static_cast<std::size_t>(i);
    const std::uint64_t size = std::uint64_t{file[at]} << 24 | std::uint64_t{file[at + 1]} << 16 |
                               std::uint64_t{file[at + 2]} << 8 | file[at + 3];
    if (size == 0) fail(at, "a dimension of 0, expected at least 1");
    // A division, since the product could overflow.
    if (size > file.size() / values) {
      fail(at, "a dimension of ", size, " needs more values than the file's ", file.size(), " bytes have");
    }
    values *= size;
    view.shape.push_back(static_cast<std::int64_t>(size));
  }
  if (file.size() < header + values) {
    fail(file.size(), "the file ends here, expected ", header + values, " bytes");
  }
  if (file.size() > header + values) {
    fail(header + values, file.size() - header - values, " more bytes, expected the end of the file");
  }
  view.values = file.subspan(header);
  return view;
}

bool IdxKind::detect(const std::string& /*name*/, const std::string& path) { return detect_idx(path); }

OpenedData IdxKind::open(const std::string& /*name*/, const std::string& path, const DataOptions& options,
                         const Options& /*own*/) {
  return open_idx(path, options);
}

}  // namespace rondo
