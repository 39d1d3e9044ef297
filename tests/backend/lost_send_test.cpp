#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "tests/collective/faulty_job.h"

namespace rondo {
namespace {

// More than the kernel buffers for a connection.
constexpr std::int64_t kBytes = std::int64_t{256} << 20;

Context joined_context(const std::string& backend, int rank, const std::shared_ptr<Store>& meeting) {
  at::set_num_threads(1);
  InitOptions options;
  options.backend = backend;
  options.rank = rank;
  options.world_size = 2;
  options.store = c10::make_intrusive<StoreForC10d>(meeting);
  options.host = str("host ", rank);
  return init(options);
}

// Rank 1 is killed when the first byte has arrived, so that rank 0 has written a part of its message and only
// waits to write the rest. No other rank has a connection to rank 1.
void expect_told(const std::string& backend,
                 const std::function<void(at::Tensor&, const Group&)>& operation) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  tests::FaultRecord record;
  const std::shared_ptr<Store> meeting = SharedStore::create();
  tests::FaultyJob job(backend, 2, 1, SIGKILL);
  job.start<PeerLostError>([&](int rank, const std::function<void()>& strike) {
    const Context context = joined_context(backend, rank, meeting);
    at::Tensor message = rank == 0 ? at::ones({kBytes}, at::kByte) : at::zeros({kBytes}, at::kByte);
    std::thread killer;
    if (rank == 1) {
      killer = std::thread([&] {
        const volatile std::uint8_t* const first = message.data_ptr<std::uint8_t>();
        while (*first == 0) std::this_thread::yield();
        strike();
      });
    }
    try {
      operation(message, context.world());
    } catch (const std::exception&) {
      job.note_error();
      throw;
    }
  });
  record.finish(job);
  EXPECT_EQ(record.wrong(), std::vector<std::string>());
  // The job's deadline is five minutes.
  EXPECT_LT(job.milliseconds(), 60'000);
}

TEST(LostSend, TheReceiverOfAMessageIsGone) {
  expect_told("hierarchical(native, gloo)", [](at::Tensor& message, const Group& world) {
    if (world.rank() == 0) return send(message, world, 1);
    recv(message, world, 0);
  });
}

TEST(LostSend, AHostIsGoneInABroadcast) {
  expect_told("hierarchical(native, gloo, chunk=256MiB)",
              [](at::Tensor& message, const Group& world) { broadcast(message, world, 0); });
}

}  // namespace
}  // namespace rondo
