// Compiled with USE_C10D_GLOO and Gloo's headers, which no other file sees; the code behind them is in
// libtorch.
#include <signal.h>

#include <ATen/ops/empty.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <limits>
#include <memory>

#include "rondo/backend/engine/engine_reason.h"
#include "rondo/backend/engine/plain_engines.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/gloo/send_watch.h"
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

class WatchedSend final : public c10d::Work {
 public:
  WatchedSend(c10::intrusive_ptr<c10d::Work> send, int peer, std::shared_ptr<SendWatch> watch)
      : send_(std::move(send)), peer_(peer), watch_(std::move(watch)) {}

  bool wait(std::chrono::milliseconds timeout) override { return watch_->wait(*send_, peer_, timeout); }
  bool isCompleted() override { return send_->isCompleted(); }
  bool isSuccess() const override { return send_->isSuccess(); }
  std::exception_ptr exception() const override { return send_->exception(); }
  int sourceRank() const override { return send_->sourceRank(); }
  std::vector<at::Tensor> result() override { return send_->result(); }
  void abort() override { send_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return send_->getFuture(); }

 private:
  c10::intrusive_ptr<c10d::Work> send_;
  int peer_;
  std::shared_ptr<SendWatch> watch_;
};

std::string begun_key(int rank) { return str("gloo/begun/", rank); }

// Members that have not begun to connect, by their ranks in the group; empty also where the store is lost.
std::vector<int> not_begun(const BackendRequest& request) {
  std::vector<int> missing;
  try {
    for (int rank = 0; rank < request.size; ++rank) {
      if (!request.store->check({begun_key(rank)})) missing.push_back(rank);
    }
  } catch (const std::exception&) {
    return {};
  }
  return missing;
}

// Throws an error that names the members that did not come, where others had begun to wait for them.
[[noreturn]] void throw_not_connected(const BackendRequest& request, const std::string& reason, bool waited) {
  const std::string text = str("Gloo could not connect rank ", request.rank, " of ", request.size,
                               " in group '", request.group_name, "': ");
  const std::vector<int> missing = waited ? not_begun(request) : std::vector<int>{};
  if (missing.empty())
    throw Error(str(text, reason, ". GLOO_SOCKET_IFNAME names the network interface to use."));
  std::vector<int> names;
  for (const int rank : missing)
    names.push_back(request.world_ranks.empty() ? rank : request.world_ranks[static_cast<std::size_t>(rank)]);
  throw TimeoutError(str(text, reason, "; missing: rank", names.size() > 1 ? "s " : " ", join(names, ", ")),
                     missing);
}

// Gloo whose sends hear of a lost peer.
class WatchedGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  WatchedGloo(const WatchedGloo&) = delete;
  WatchedGloo& operator=(const WatchedGloo&) = delete;
  ~WatchedGloo() override { watch_->stop(); }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int destination, int tag) override {
    return c10::make_intrusive<WatchedSend>(ProcessGroupGloo::send(tensors, destination, tag), destination,
                                            watch_);
  }

 private:
  // Nobody sends with it.
  static constexpr int kProbeTag = std::numeric_limits<int>::max();

  std::shared_ptr<SendWatch> watch_ = std::make_shared<SendWatch>([this](int peer) {
    std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
    recv(nothing, peer, kProbeTag);
  });
};

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
  bool waits = false;
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
    const QuietLog quiet;
    waits = true;
    request.store->set(begun_key(request.rank), std::vector<std::uint8_t>{1});
    return c10::make_intrusive<WatchedGloo>(request.store, request.rank, request.size, options);
  } catch (const TimeoutError& e) {
    if (!e.ranks().empty()) throw;
    throw_not_connected(request, e.what(), waits);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw_not_connected(request, engine_reason(e), waits);
  }
}

bool have_gloo() { return true; }

RegisteredBackend GlooFolder::engine(const Options& /*none*/) { return {make_gloo_backend, {}, true}; }

}  // namespace rondo
