#include "rondo/format/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

bool is_plain_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%^";
  return !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
}

std::string quoted_word(const std::string& word) {
  if (is_plain_word(word)) return word;
  std::string result = "'";
  for (const char c : word) c == '\'' ? result += "'\\''" : result += c;
  return result + "'";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

std::string shell_text(std::span<const std::string> words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(quoted_word(word));
  return join(quoted, " ");
}

std::string own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return shell_text(words);
}

Provenance make_provenance(const std::string& program, std::span<const std::string> arguments) {
  const std::string words = shell_text(arguments);
  return {.program = program,
          .version = kVersion,
          .time = utc_now(),
          .host = host_name(),
          .command = words.empty() ? program : program + " " + words};
}

nlohmann::ordered_json to_json(const Provenance& provenance) {
  return {{"program", provenance.program},
          {"version", provenance.version},
          {"time", provenance.time},
          {"host", provenance.host},
          {"command", provenance.command}};
}

namespace {

using Json = nlohmann::ordered_json;

// Upper bounds of valid numbers; their sums do not overflow.
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;

RunStart start_of(const Json& json, const std::string& where) {
  const auto text = [&](const char* key) {
    return json_text(json_member(json, key, where), json_place(where, key));
  };
  const auto count = [&](const char* key, std::int64_t low, std::int64_t high) {
    return json_integer(json_member(json, key, where), json_place(where, key), low, high);
  };
  RunStart start;
  start.made.program = text("program");
  start.made.version = text("version");
  start.made.time = text("time");
  start.made.host = text("host");
  start.made.command = text("command");
  start.strategy = text("strategy");
  start.backend = text("backend");
  start.ranks = static_cast<int>(count("ranks", 1, kMostRanks));
  start.first_step = count("first_step", 0, kMostSteps);
  if (json.contains("total_steps")) start.total_steps = count("total_steps", 0, kMostSteps);
  if (json.contains("git_commit")) start.git_commit = text("git_commit");
  if (json.contains("machine")) start.machine = text("machine");
  if (json.contains("parameters")) start.parameters = count("parameters", 0, kMostSteps);
  if (json.contains("changed_options")) {
    const std::string place = json_place(where, "changed_options");
    start.changed_options.emplace();
    for (const Json& key : json_list(json["changed_options"], place))
      start.changed_options->push_back(json_text(key, place));
  }
  return start;
}

}  // namespace

Json to_json(const RunStart& start) {
  Json json = to_json(start.made);
  json["strategy"] = start.strategy;
  json["backend"] = start.backend;
  json["ranks"] = start.ranks;
  json["first_step"] = start.first_step;
  if (start.total_steps > 0) json["total_steps"] = start.total_steps;
  if (!start.git_commit.empty()) json["git_commit"] = start.git_commit;
  if (!start.machine.empty()) json["machine"] = start.machine;
  if (start.parameters > 0) json["parameters"] = start.parameters;
  if (start.changed_options) json["changed_options"] = *start.changed_options;
  return json;
}

namespace {

struct RunFile {
  RunLabels labels;
  std::vector<RunStart> starts;
};

RunFile read_run_file(const std::filesystem::path& path) {
  const std::string file = path.string();
  const Json document = parse_json_strict(read_text_file(path), file);
  RunFile run;
  for (const Json& start : json_list(json_member(document, "starts", file), json_place(file, "starts")))
    run.starts.push_back(start_of(start, str(file, ": start ", run.starts.size(), " of \"starts\"")));
  if (document.contains("name")) run.labels.name = json_text(document["name"], json_place(file, "name"));
  if (document.contains("notes")) run.labels.notes = json_text(document["notes"], json_place(file, "notes"));
  if (document.contains("tags")) {
    const std::string place = json_place(file, "tags");
    run.labels.tags.emplace();
    for (const Json& tag : json_list(document["tags"], place))
      run.labels.tags->push_back(json_text(tag, place));
  }
  return run;
}

void write_run_file(const std::filesystem::path& path, const RunFile& run) {
  Json document = Json::object();
  if (run.labels.name) document["name"] = *run.labels.name;
  if (run.labels.tags) document["tags"] = *run.labels.tags;
  if (run.labels.notes) document["notes"] = *run.labels.notes;
  document["starts"] = Json::array();
  for (const RunStart& start : run.starts) document["starts"].push_back(to_json(start));
  // Host names and command lines may contain arbitrary bytes.
  replace_text_file(path, document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void apply(const RunLabels& changes, RunLabels& labels) {
  const auto apply_one = [](const auto& change, auto& label) {
    if (change) label = change;
    if (label && label->empty()) label.reset();
  };
  apply_one(changes.name, labels.name);
  apply_one(changes.tags, labels.tags);
  apply_one(changes.notes, labels.notes);
}

}  // namespace

std::vector<RunStart> read_run_starts(const std::filesystem::path& path) {
  return read_run_file(path).starts;
}

RunLabels read_run_labels(const std::filesystem::path& path) { return read_run_file(path).labels; }

void change_run_labels(const std::filesystem::path& path, const RunLabels& changes) {
  RunFile run;
  if (std::filesystem::exists(path)) run = read_run_file(path);
  apply(changes, run.labels);
  write_run_file(path, run);
}

void add_run_start(const std::filesystem::path& path, const RunStart& start, const RunLabels& labels) {
  RunFile run;
  if (start.first_step > 0 && std::filesystem::exists(path)) {
    try {
      run = read_run_file(path);
    } catch (const DataError&) {
      // The file is only informative: training continues without the damaged content.
    }
  }
  std::erase_if(run.starts, [&](const RunStart& other) { return other.first_step > start.first_step; });
  run.starts.push_back(start);
  apply(labels, run.labels);
  write_run_file(path, run);
}

namespace fs = std::filesystem;
namespace {

// Returns an exclusive lock of the whole file.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Returns the text that the lock holder wrote: "process 12 on host h".
std::string holder_of(int descriptor) {
  std::array<char, 300> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size() - 1, 0);
  std::string holder;
  for (ssize_t i = 0; i < length && text[static_cast<std::size_t>(i)] >= ' '; ++i)
    holder += text[static_cast<std::size_t>(i)];
  return holder.empty() ? "another process" : holder;
}

}  // namespace

RunLock::RunLock(fs::path run_directory) : directory_(std::move(run_directory)) {
  std::error_code code;
  made_directory_ = fs::create_directories(directory_, code);
  if (code) throw Error(str("cannot create the run directory ", directory_.string(), ": ", code.message()));
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (try_open()) return;
  }
  throw Error(
      str("cannot lock ", (directory_ / file_name).string(), ": another process removes it immediately"));
}

bool RunLock::try_open() {
  const fs::path path = directory_ / file_name;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (descriptor_ < 0) throw Error(str("cannot make ", path.string(), ": ", errno_text(errno)));
  struct flock lock = whole_file();
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) != 0) {
    const int reason = errno;
    const std::string holder = holder_of(descriptor_);
    if (reason == EAGAIN || reason == EACCES) {
      ::close(std::exchange(descriptor_, -1));
      throw UsageError(
          str("run directory ", directory_.string(), " is in use: ", holder,
              " trains in it; wait for its end, stop it, or give another directory (--run-dir)"));
    }
    log::warning(path.string(), ": this file system has no locks (", errno_text(reason),
                 "); nothing keeps a second training out of the run directory");
    return true;
  }
  // A holder that exits removes the file, and a lock on the removed file protects nothing.
  if (!is_still_at(descriptor_, path)) {
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  const std::string text = str("process ", ::getpid(), " on host ", host_name(), "\n");
  // Only for the message above; a full disk does no harm.
  ssize_t written = ::ftruncate(descriptor_, 0);
  if (written == 0) written = ::pwrite(descriptor_, text.data(), text.size(), 0);
  static_cast<void>(written);
  return true;
}

bool RunLock::is_held(const fs::path& run_directory) {
  const fs::path path = run_directory / file_name;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  struct flock lock = whole_file();
  const bool is_free = ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  ::close(descriptor);
  return !is_free;
}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  const fs::path path = directory_ / file_name;
  if (is_still_at(descriptor_, path)) ::unlink(path.c_str());
  ::close(descriptor_);
  if (made_directory_) ::rmdir(directory_.c_str());
}

}  // namespace rondo
