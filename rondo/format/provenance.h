#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

namespace rondo {

// What made a file or a run, so that it can be told from others and made again.
struct Provenance {
  std::string program;  // "rondo train"
  std::string version;  // of rondo: "0.1.0"
  std::string time;     // UTC: "2026-11-22T16:24:40Z"
  std::string host;
  std::string command;  // as a shell reads it
};

// Of this moment on this host. `arguments` are the program's own, without its name.
Provenance make_provenance(const std::string& program, std::span<const std::string> arguments);

nlohmann::ordered_json to_json(const Provenance& provenance);

// The command line of this process, as the kernel has it; empty where it cannot be read.
std::string own_command();

// `words` as one line that a POSIX shell splits into the same words.
std::string shell_text(std::span<const std::string> words);

}  // namespace rondo
