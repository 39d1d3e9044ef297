// Randomly damaged checkpoints: the newest one loads or is refused with the damage named, and the previous
// one always loads. `make survive` runs 10,000 of them.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/format/checkpoint_files.h"
#include "tests/temporary_directory.h"

namespace rondo::damage_test {
namespace {

namespace fs = std::filesystem;

struct Subject {
  Subject() : net(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 2)) {
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.1));
  }
  void step() {
    optimizer->zero_grad();
    net->forward(torch::randn({4, 3})).square().sum().backward();
    optimizer->step();
  }
  TrainingState state() {
    return {.model = named_tensors(*net),
            .optimizers = {{.optimizer = optimizer.get()}},
            .random_states = {random_state(c10::kCPU)}};
  }
  std::vector<at::Tensor> weights() {
    std::vector<at::Tensor> result;
    for (const NamedTensor& t : named_tensors(*net)) result.push_back(t.tensor.detach().clone());
    return result;
  }
  bool has(const std::vector<at::Tensor>& expected) {
    const std::vector<at::Tensor> here = weights();
    return std::equal(here.begin(), here.end(), expected.begin(),
                      [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
  }

  torch::nn::Sequential net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

// Layout of a checkpoint.
enum class Layout { whole, in_two_parts };

// Saves like two ranks: tensors with several dimensions are split by rows, tensors with one dimension in
// halves, and scalars belong to the second rank.
fs::path save_in_two_parts(const fs::path& root, std::int64_t step, const TrainingState& state) {
  const at::NoGradGuard no_gradient;
  CheckpointPart parts[]{{.number = 0, .count = 2}, {.number = 1, .count = 2}};
  const auto divide = [&](std::vector<Shard> CheckpointPart::*list, const TensorSource& source) {
    const at::Tensor all = source.make().detach();
    const std::int64_t rows = all.dim() == 0 ? 0 : all.size(0) / 2;
    if (rows == 0) {
      (parts[1].*list).push_back(full_shard(source.name, all));
      return;
    }
    const at::Tensor halves[]{all.narrow(0, 0, rows), all.narrow(0, rows, all.size(0) - rows)};
    for (int half = 0; half < 2; ++half) {
      const at::Tensor& rest = halves[half];
      const std::int64_t begin = half == 0 ? 0 : halves[0].numel();
      Shard shard = flat_shard(source.name, all.sizes().vec(), begin, rest.reshape({-1}));
      if (all.dim() > 1) {
        shard = full_shard(source.name, rest);
        shard.global_sizes = all.sizes().vec();
        shard.offsets.front() = half == 0 ? 0 : rows;
      }
      (parts[half].*list).push_back(std::move(shard));
    }
  };
  CheckpointContents contents = contents_of(state);
  for (const TensorSource& source : contents.model) divide(&CheckpointPart::model, source);
  for (const TensorSource& source : contents.optimizer_tensors) divide(&CheckpointPart::optimizer, source);
  CheckpointWriter writer(root, step);
  for (const CheckpointPart& part : parts) {
    for (FileRecord& file : write_part(writer.directory(), part)) writer.add(std::move(file));
  }
  write_rest(writer, contents);
  return writer.commit(3);
}

fs::path save_as(Layout layout, const fs::path& root, std::int64_t step, const TrainingState& state) {
  if (layout == Layout::in_two_parts) return save_in_two_parts(root, step, state);
  return save_checkpoint(root, step, state);
}

// Damages the files of one checkpoint and restores them.
class Vandal {
 public:
  Vandal(fs::path newest, const fs::path& older, std::uint64_t seed)
      : newest_(std::move(newest)), random_(seed) {
    for (const auto& entry : fs::directory_iterator(newest_)) {
      const std::string name = entry.path().filename().string();
      good_[name] = read_regular_file(entry.path());
      older_[name] = read_regular_file(older / name);
      names_.push_back(name);
    }
    std::sort(names_.begin(), names_.end());
    manifest_ = read_manifest(newest_);
  }

  // Returns a description of the damage. `is_sealed`: the manifest was rewritten, so that the checksums
  // match.
  std::string damage(bool& is_sealed) {
    const std::string& name = names_[random_.below(names_.size())];
    std::string bytes = good_.at(name);
    is_sealed = false;
    switch (random_.below(8)) {
      case 0:
        write(name, bytes.substr(0, random_.below(bytes.size())));
        return str("cut ", name);
      case 1:
        for (std::uint64_t i = 0; i <= random_.below(4); ++i) {
          const std::size_t place = random_.below(bytes.size());
          bytes[place] = static_cast<char>(bytes[place] ^ (1 << random_.below(8)));
        }
        write(name, bytes);
        return str("flipped ", name);
      case 2: {
        const std::size_t size = 1 + random_.below(bytes.size() / 2);
        const std::size_t from = random_.below(bytes.size() - 2 * size + 1);
        std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(from),
                         bytes.begin() + static_cast<std::ptrdiff_t>(from + size),
                         bytes.end() - static_cast<std::ptrdiff_t>(size));
        write(name, bytes);
        return str("swapped parts of ", name);
      }
      case 3: {
        const std::string& other = names_[random_.below(names_.size())];
        write(name, good_.at(other));
        write(other, bytes);
        return str("swapped ", name, " and ", other);
      }
      case 4:
        write(name, older_.at(name));
        return str("the older ", name);
      case 5:
        touched_.push_back(name);
        fs::remove(newest_ / name);
        return str("removed ", name);
      default:
        is_sealed = true;
        return make_hostile();
    }
  }
  void put_back() {
    for (const std::string& name : touched_) write_bytes(name, good_.at(name));
    touched_.clear();
  }

 private:
  void write(const std::string& name, const std::string& bytes) {
    touched_.push_back(name);
    write_bytes(name, bytes);
  }
  void write_bytes(const std::string& name, const std::string& bytes) const {
    fs::remove(newest_ / name);
    OutputFile file(newest_ / name, OutputFile::Mode::create);
    file.write(bytes);
    file.close();
  }

  // Replaces a number in the text by an invalid one or by another value.
  std::string with_nonsense(std::string text) {
    static const std::vector<std::string> numbers{"-1",
                                                  "0",
                                                  "1e400",
                                                  "9223372036854775807",
                                                  "18446744073709551616",
                                                  "4611686018427387904",
                                                  "null",
                                                  "[[[[]]]]",
                                                  "\"\"",
                                                  "{}",
                                                  "7"};
    std::vector<std::pair<std::size_t, std::size_t>> digits;
    for (std::size_t i = 0; i < text.size(); ++i) {
      std::size_t end = i;
      while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
      if (end > i) digits.emplace_back(i, end - i);
      i = std::max(i, end);
    }
    if (digits.empty()) return "{}";
    for (std::uint64_t i = 0; i <= random_.below(2); ++i) {
      const auto [place, size] = digits[random_.below(digits.size())];
      if (place + size > text.size()) break;
      text.replace(place, size, numbers[random_.below(numbers.size())]);
    }
    return text;
  }

  // Changes the address of a shard, if the file has any.
  std::string with_nonsense_address(const std::string& header) {
    std::vector<std::size_t> addresses;
    for (std::size_t at = header.find("\"shard:"); at != std::string::npos;
         at = header.find("\"shard:", at + 1))
      addresses.push_back(at);
    if (addresses.empty()) return with_nonsense(header);
    const std::size_t name = addresses[random_.below(addresses.size())];
    const std::size_t begin = header.find("\":\"", name) + 4;
    const std::size_t end = std::max(begin, header.find("}\"", begin));
    return header.substr(0, begin) + with_nonsense(header.substr(begin, end - begin)) + header.substr(end);
  }

  std::string hostile_header(std::string header) {
    static const std::vector<std::string> metadata{
        R"("shared:0.bias":"2.bias")",
        R"("shared:x":"nowhere")",
        R"("shard:0.bias":"{}")",
        R"("shard:0.bias":"{\"name\":\"0.bias\",\"full\":[-5],\"offsets\":[0],\"sizes\":[5]}")",
        R"("shard:0.bias":"{\"name\":\"0.bias\",\"full\":[9],\"offsets\":[4],\"sizes\":[5]}")",
        R"("shard:0.bias":"{\"name\":\"2.bias\",\"full\":[5],\"offsets\":[9223372036854775807],\"sizes\":[5]}")",
        R"("shard:0.bias":"{\"name\":\"0.bias\",\"full\":[4611686018427387904,4],\"offsets\":[0,0],\"sizes\":[1,5]}")",
        R"("shard:0.bias":"{\"name\":\"0.bias\",\"full\":[5],\"offsets\":[0],\"sizes\":[5],\"within\":[3,99]}")",
        R"("shard:0.bias":"[[[[")"};
    const auto replace = [&](std::string_view what, const std::string& by) {
      const std::size_t place = header.find(what);
      if (place != std::string::npos) header.replace(place, what.size(), by);
    };
    switch (random_.below(8)) {
      case 0:
        return with_nonsense(header);
      case 6:
      case 7:
        return with_nonsense_address(header);
      case 1:
        replace("\"F32\"", "\"F64\"");
        return header;
      case 2:
        replace("{", str(R"({"__metadata__":{)", metadata[random_.below(metadata.size())], "},"));
        return header;
      case 3:
        replace("{", "{" + header.substr(1, header.find('}')) + ",");  // a duplicate name
        return header;
      case 4:
        return std::string(random_.below(200000), '[');
      default:
        replace("\"shape\"", "\"shape \"");
        return header;
    }
  }

  // Writes an invalid file with a matching manifest.
  std::string make_hostile() {
    Manifest manifest = manifest_;
    FileRecord& record = manifest.files[random_.below(manifest.files.size())];
    std::string bytes = good_.at(record.name);
    if (record.name.ends_with(".json")) {
      bytes = with_nonsense(bytes);
    } else {
      std::uint64_t length = 0;
      bytes.copy(reinterpret_cast<char*>(&length), sizeof length);
      const std::string data = bytes.substr(sizeof length + length);
      const std::string header = hostile_header(bytes.substr(sizeof length, length));
      length = random_.below(4) == 0 ? random_.below(UINT64_MAX) : header.size();
      const std::string head = std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
      bytes = head + data;
      record.header_checksum = random_.below(2) == 0 ? checksum_hex(as_bytes(head)) : "";
    }
    record.bytes = bytes.size();
    record.checksum = checksum_hex(as_bytes(bytes));
    write(record.name, bytes);
    write(std::string(Manifest::file_name), to_text(manifest));
    return str("hostile ", record.name);
  }

  fs::path newest_;
  RandomStream random_;
  Manifest manifest_;
  std::map<std::string, std::string> good_, older_;
  std::vector<std::string> names_, touched_;
};

bool names_what_is_damaged(const std::string& message) {
  for (const char* fact : {"model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json",
                           "manifest.json", "tensor '", "optimizer 'optimizer'",
                           "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"}) {
    if (message.find(fact) != std::string::npos) return true;
  }
  return false;
}

class Damage : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Damage, ::testing::Values(Layout::whole, Layout::in_two_parts),
                         [](const auto& layout) {
                           return std::string(layout.param == Layout::whole ? "Whole" : "InTwoParts");
                         });

TEST_P(Damage, NewestLoadsOrItsPredecessorDoes) {
  const char* const wanted = std::getenv("RONDO_SURVIVE_DAMAGED");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 200;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // the tensors are tiny
  const TemporaryDirectory directory("/dev/shm");
  torch::manual_seed(3);
  Subject subject;
  subject.step();
  const fs::path older = save_as(GetParam(), directory.path(), 1, subject.state());
  const std::vector<at::Tensor> at_older = subject.weights();
  subject.step();
  const fs::path newest = save_as(GetParam(), directory.path(), 2, subject.state());
  const std::vector<at::Tensor> at_newest = subject.weights();
  Vandal vandal(newest, older, 11);
  std::map<std::string, int> outcomes;
  for (int round = 0; round < rounds; ++round) {
    subject.step();
    const std::vector<at::Tensor> before = subject.weights();
    bool is_sealed = false;
    const std::string what = str("round ", round, ": ", vandal.damage(is_sealed));
    TrainingState state = subject.state();
    try {
      load_checkpoint(directory.path(), state);
      ++outcomes["loaded"];
      ASSERT_TRUE(is_sealed || subject.has(at_newest)) << what << ": damaged weights were loaded";
    } catch (const Error& error) {
      ++outcomes["refused"];
      ASSERT_TRUE(names_what_is_damaged(error.what())) << what << ": " << error.what();
      ASSERT_TRUE(subject.has(before)) << what << ": a refused checkpoint has changed the model";
      const IntactCheckpoint intact = newest_intact_checkpoint(directory.path());
      ASSERT_TRUE(intact.newest) << what;
      ASSERT_TRUE(is_sealed || intact.newest->step == 1) << what;
      load_checkpoint(older, state);
      ASSERT_TRUE(subject.has(at_older)) << what;
    }
    vandal.put_back();
    load_checkpoint(directory.path(), state);  // a harmless change may still have been loaded
    ASSERT_TRUE(subject.has(at_newest)) << what;
  }
  at::set_num_threads(threads);
  std::printf("damaged checkpoints: %d, refused %d, loaded as harmless %d\n", rounds, outcomes["refused"],
              outcomes["loaded"]);
  EXPECT_GT(outcomes["refused"], rounds / 2);
}

}  // namespace
}  // namespace rondo::damage_test
