#include "rondo/launch/error_file.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/output.h"

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

namespace rondo::launch {

using Json = nlohmann::json;

void record_failure(std::string_view message) noexcept {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  try {
    const Json timestamp = {{"timestamp", std::to_string(std::time(nullptr))}};
    const Json content = {{"message", {{"message", std::string(message)}, {"extraInfo", timestamp}}}};
    write_output(path, content.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (...) {
    // The failure itself is on its way to standard error; there is nobody left to tell about this one.
  }
}

std::string read_error_file(const std::string& path) {
  Json content;
  try {
    content = read_json_file(path);
  } catch (const DataError&) {
    return {};  // nothing was written, or it was cut off; the worker's last lines say the rest
  }
  if (!content.is_object() || !content.contains("message")) return {};
  const Json& message = content["message"];
  if (message.is_string()) return message.get<std::string>();
  if (message.is_object() && message.contains("message") && message["message"].is_string()) {
    return message["message"].get<std::string>();
  }
  return {};
}

}  // namespace rondo::launch
