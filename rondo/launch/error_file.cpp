#include "rondo/launch/error_file.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/output.h"
#include "rondo/base/printable.h"

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

namespace rondo::launch {

using Json = nlohmann::json;

namespace {

constexpr const char* kPeerLost = "peer_lost";

void write_error_file(std::string_view message, bool peer_lost) noexcept {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  try {
    Json extra = {{"timestamp", std::to_string(std::time(nullptr))}};
    if (peer_lost) extra[kPeerLost] = true;
    const Json content = {
        {"message", {{"message", printable(message, message.size())}, {"extraInfo", extra}}}};
    write_output(path, content.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (...) {
    // The failure itself is on its way to standard error; there is nobody left to tell about this one.
  }
}

// What stands under "message"; null when there is no such file or it is malformed.
Json message_in(const std::string& path) {
  try {
    const Json content = read_json_file(path);
    if (content.is_object() && content.contains("message")) return content["message"];
  } catch (const DataError&) {
    // Nothing was written, or it was cut off; the worker's last lines say the rest.
  }
  return nullptr;
}

}  // namespace

void record_failure(std::string_view message) noexcept { write_error_file(message, /*peer_lost=*/false); }

void record_failure(const std::exception& error) noexcept {
  write_error_file(plain_message(error), dynamic_cast<const PeerLostError*>(&error) != nullptr);
}

std::string read_error_file(const std::string& path) {
  const Json message = message_in(path);
  if (message.is_string()) return message.get<std::string>();
  if (message.is_object() && message.contains("message") && message["message"].is_string()) {
    return message["message"].get<std::string>();
  }
  return {};
}

bool tells_of_lost_peer(const std::string& path) {
  const Json message = message_in(path);
  if (!message.is_object() || !message.contains("extraInfo")) return false;
  const Json& extra = message["extraInfo"];
  return extra.is_object() && extra.contains(kPeerLost) && extra[kPeerLost] == true;
}

}  // namespace rondo::launch
