#include "rondo/launch/server_job.h"

#include <unistd.h>

#include <cerrno>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/secret.h"
#include "rondo/launch/memory_file.h"
#include "rondo/launch/port.h"

namespace rondo::launch {
namespace {

std::string quoted(const std::vector<std::string>& addresses) {
  std::vector<std::string> texts;
  for (const std::string& address : addresses) texts.push_back(str('"', address, '"'));
  return join(texts, ",");
}

}  // namespace

ServerJob::ServerJob(int workers, int servers)
    : workers_(workers), secret_(make_memory_file("rondo-secret")) {
  std::set<int> ports;
  while (static_cast<int>(ports.size()) < workers + servers) ports.insert(find_free_port());
  for (const int port : ports) addresses_.push_back(str("127.0.0.1:", port));
  const std::string text = control::JobSecret::make().text();
  if (write(secret_.number(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Error(str("cannot keep the job's secret: ", errno_text(errno)));
  for (int server = 0; server < servers; ++server)
    memories_.push_back(make_memory_file(str("rondo-server-", server)));
}

void ServerJob::describe(int rank, env::EnvironmentMap& environment) const {
  const bool is_server = rank >= workers_;
  const bool is_evaluator = rank >= static_cast<int>(addresses_.size());
  const auto first_server = addresses_.begin() + workers_;
  const std::string servers = quoted({first_server, addresses_.end()});
  environment["TF_CONFIG"] =
      str(R"({"cluster":{"worker":[)", quoted({addresses_.begin(), first_server}), "]",
          servers.empty() ? "" : str(R"(,"ps":[)", servers, "]"), R"(},"task":{"type":")",
          is_evaluator ? "evaluator"
          : is_server  ? "ps"
                       : "worker",
          R"(","index":)",
          is_evaluator ? 0
          : is_server  ? rank - workers_
                       : rank,
          "}}");
  if (!env::lookup(environment, control::kSecretDescriptorVariable))
    environment.emplace(control::kSecretFileVariable, path_of(secret_));
  environment.erase("RONDO_SERVER_MEMORY");
  if (is_server && !is_evaluator)
    environment["RONDO_SERVER_MEMORY"] = path_of(memories_[static_cast<std::size_t>(rank - workers_)]);
}

}  // namespace rondo::launch
