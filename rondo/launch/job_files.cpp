#include "rondo/launch/job_files.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/secret.h"
#include "rondo/launch/network.h"

namespace rondo::launch {

Descriptor make_memory_file(const std::string& name) {
  Descriptor file(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!file.valid() || fchmod(file.number(), S_IRUSR | S_IWUSR) != 0)
    throw Error(str("cannot make the shared-memory file ", name, ": ", errno_text(errno)));
  return file;
}

std::string path_of(const Descriptor& file) { return str("/proc/", getpid(), "/fd/", file.number()); }

EndedWorkersFile::EndedWorkersFile(int workers)
    : workers_(workers), file_(make_memory_file("rondo-ended-workers")) {
  if (ftruncate(file_.number(), workers) != 0)
    throw Error(str("cannot record which workers have ended: ", errno_text(errno)));
}

std::string EndedWorkersFile::path() const { return path_of(file_); }

void EndedWorkersFile::note(int worker) const {
  if (worker >= workers_) return;
  const char ended = 1;
  // The byte already exists in the file, so the write cannot fail.
  const ssize_t ignored = pwrite(file_.number(), &ended, 1, worker);
  static_cast<void>(ignored);
}

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
    throw Error(str("cannot store the job's secret: ", errno_text(errno)));
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
