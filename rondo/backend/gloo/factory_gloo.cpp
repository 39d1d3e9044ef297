// Compiled with USE_C10D_GLOO and Gloo's headers, which no other file sees; the code behind them is in
// libtorch.
#include <signal.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

#include "rondo/backend/gloo/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"

namespace rondo {
namespace {

// Gloo writes to sockets whose other end may just have died. Without this the kernel ends the whole process,
// before anybody can say which rank is gone. A program's own handler stays.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  now.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &now, nullptr);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest& request) {
  using c10d::ProcessGroupGloo;
  ignore_broken_pipes();
  auto options = ProcessGroupGloo::Options::create(
      std::chrono::duration_cast<std::chrono::milliseconds>(request.timeout));
  // One thread runs a rank's collectives in the order they were started; more would only take turns on the
  // processor.
  options->threads = 2;
  options->global_ranks_in_group.assign(request.world_ranks.begin(), request.world_ranks.end());
  options->group_name = request.group_name;
  try {
    if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
        interface != nullptr && *interface != '\0') {
      for (const std::string& name : split(interface, ',')) {
        options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
      }
    } else if (!request.one_host() && !request.local_address.empty()) {
      options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(request.local_address));
    } else if (request.one_host() &&
               (std::getenv(kStoreDescriptorVariable) != nullptr || request.size == 1)) {
      options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    } else {
      options->devices.push_back(ProcessGroupGloo::createDefaultDevice());
    }
    return c10::make_intrusive<ProcessGroupGloo>(request.store, request.rank, request.size, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(str("Gloo could not connect rank ", request.rank, " of ", request.size, " in group '",
                    request.group_name, "': ", split(e.what(), '\n').front(),
                    ". GLOO_SOCKET_IFNAME names the network interface to use."));
  }
}

bool have_gloo() { return true; }

}  // namespace rondo
