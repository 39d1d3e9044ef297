#include "rondo/server/cluster.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/server/local_link.h"
#include "rondo/server/remote_link.h"

namespace rondo::server {
namespace {

constexpr auto kGoodbye = std::chrono::seconds(30);
constexpr auto kPollWorkers = std::chrono::milliseconds(20);

std::shared_ptr<SharedMemory> memory_of(std::int64_t process, std::int32_t descriptor) {
  // Maps the memory again even if the server is a thread of this process (in a test).
  return std::make_shared<SharedMemory>(SharedMemory::open(static_cast<pid_t>(process), descriptor));
}

}  // namespace

struct Cluster::Server {
  std::shared_ptr<RequestClient> asker;
  std::unique_ptr<Link> link;
  bool local = false;
  std::uint64_t step = 0;  // current step, in the server's numbering
};

Cluster::Cluster(const ClusterOptions& options, const control::JobSecret& secret,
                 const std::vector<VariableSpec>& variables)
    : options_(options),
      variables_(variables),
      shards_(place(variables, options.addresses.size(), options.partitioner, options.placement)),
      parts_(variables.size()),
      cursors_(shards_.size(), kNoCursor) {
  if (options_.codec != "none") codec_ = collective::make_codec(options_.codec);
  for (std::size_t shard = 0; shard < shards_.size(); ++shard)
    parts_[shards_[shard].variable].push_back(shard);
  for (std::size_t server = 0; server < options_.addresses.size(); ++server) meet(server, secret);
}

Cluster::~Cluster() = default;

void Cluster::meet(std::size_t server, const control::JobSecret& secret) {
  const std::string who = str("worker ", options_.worker, " on host ", host_name());
  const std::string whom = str("server ", server, " at ", options_.addresses[server]);
  servers_.push_back(std::make_unique<Server>());
  Server& made = *servers_.back();
  made.asker = std::make_shared<RequestClient>(
      std::make_unique<control::Connection>(options_.addresses[server], secret, who, whom), options_.worker,
      who);
  const std::vector<VariableSpec> theirs = variables_of(variables_, shards_, server);
  const std::string answer = made.asker->ask(
      Operation::hello,
      [&](control::MessageWriter& writer) {
        writer.number(static_cast<std::int64_t>(getpid()))
            .text(host_identity())
            .text(host_name())
            .number(static_cast<std::uint32_t>(options_.worker == 0));
        write_options(writer, options_.server);
        write_variables(writer, theirs);
      },
      deadline());
  control::MessageReader reader(answer, whom);
  made.local = reader.number<std::uint32_t>("here", 0, 1) != 0;
  const auto process = reader.number<std::int64_t>("process");
  const auto descriptor = reader.number<std::int32_t>("descriptor");
  was_open_ = reader.number<std::uint32_t>("open", 0, 1) != 0 && was_open_;
  clock_ = std::max(clock_, reader.number<std::uint64_t>("clock"));
  const auto signature = reader.number<std::uint64_t>("signature");
  reader.end();
  if (signature != signature_of(theirs))
    throw MismatchError(str(whom, " has other variables than ", who, " expects"), {});
  if (made.local) {
    made.link = std::make_unique<LocalLink>(ServerMemory::open(memory_of(process, descriptor)),
                                            options_.worker, who, whom);
  } else {
    made.link = std::make_unique<RemoteLink>(made.asker, theirs, options_.timeout);
  }
}

bool Cluster::all_local() const {
  return std::all_of(servers_.begin(), servers_.end(), [](const auto& server) { return server->local; });
}

// Calls use(link, shard, index of the shard) for every shard of the variable.
template <class Use>
void Cluster::for_parts(std::size_t variable, const Use& use) {
  for (const std::size_t part : parts_[variable]) {
    const Shard& shard = shards_[part];
    use(*servers_[shard.server]->link, shard, part);
  }
}

void Cluster::open() {
  for (const auto& server : servers_) {
    server->asker->ask(
        Operation::open, [](control::MessageWriter&) {}, deadline());
  }
}

void Cluster::wait_until_open() {
  const Deadline limit = deadline();
  while (!was_open_) {
    was_open_ = true;
    for (const auto& server : servers_) was_open_ = was_open_ && server->link->is_open();
    if (was_open_) return;
    if (limit.passed()) {
      throw TimeoutError(str("worker ", options_.worker,
                             " timed out waiting for the chief (worker 0), which initialises the servers"),
                         {0});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Cluster::pull(std::size_t variable, std::span<float> to) {
  for_parts(variable, [&](Link& link, const Shard& shard, std::size_t) {
    const std::size_t row = variables_[variable].row_elements;
    link.pull(shard.number, to.subspan(shard.first * row, shard.rows * row), deadline());
  });
}

void Cluster::pull_rows(std::size_t variable, std::span<const std::uint64_t> rows, float* to) {
  const std::size_t row = variables_[variable].row_elements;
  for_parts(variable, [&](Link& link, const Shard& shard, std::size_t) {
    std::vector<std::uint64_t> wanted;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < shard.first || rows[i] >= shard.first + shard.rows) continue;
      wanted.push_back(rows[i] - shard.first);
      places.push_back(i);
    }
    if (wanted.size() == rows.size()) return link.pull_rows(shard.number, wanted, to, deadline());
    std::vector<float> values(wanted.size() * row);
    link.pull_rows(shard.number, wanted, values.data(), deadline());
    for (std::size_t i = 0; i < places.size(); ++i)
      std::copy_n(values.data() + i * row, row, to + places[i] * row);
  });
}

std::uint64_t Cluster::pull_changes(std::size_t variable, float* copy) {
  const std::size_t row = variables_[variable].row_elements;
  std::uint64_t travelled = 0;
  for_parts(variable, [&](Link& link, const Shard& shard, std::size_t part) {
    float* const own = copy + shard.first * row;
    const auto rows = link.changed_rows(shard.number, cursors_[part], deadline());
    if (!rows) {
      link.pull(shard.number, {own, shard.rows * row}, deadline());
      travelled += shard.rows;
      return;
    }
    std::vector<float> values(rows->size() * row);
    link.pull_rows(shard.number, *rows, values.data(), deadline());
    for (std::size_t i = 0; i < rows->size(); ++i)
      std::copy_n(values.data() + i * row, row, own + (*rows)[i] * row);
    travelled += rows->size();
  });
  return travelled;
}

void Cluster::push(std::size_t variable, std::span<const float> gradient, const Entry& how,
                   std::span<float> residual) {
  const std::size_t row = variables_[variable].row_elements;
  for_parts(variable, [&](Link& link, const Shard& shard, std::size_t) {
    const std::size_t first = shard.first * row;
    const auto own = gradient.subspan(first, shard.rows * row);
    if (!codec_) return link.push(shard.number, own, how, deadline());
    encoded_.resize(codec_->encoded_bytes(own.size()));
    codec_->encode(own, encoded_, residual.empty() ? residual : residual.subspan(first, own.size()));
    link.push_encoded(shard.number, {options_.codec, encoded_}, how, deadline());
  });
}

void Cluster::push_rows(std::size_t variable, std::span<const std::uint64_t> rows, const float* gradients,
                        const Entry& how) {
  const std::size_t row = variables_[variable].row_elements;
  for_parts(variable, [&](Link& link, const Shard& shard, std::size_t) {
    const auto begin = std::lower_bound(rows.begin(), rows.end(), shard.first);
    const auto end = std::lower_bound(begin, rows.end(), shard.first + shard.rows);
    const auto skipped = static_cast<std::size_t>(begin - rows.begin());
    if (shard.first == 0) return link.push_rows(shard.number, {begin, end}, gradients, how, deadline());
    std::vector<std::uint64_t> own(begin, end);
    for (std::uint64_t& each : own) each -= shard.first;
    link.push_rows(shard.number, own, gradients + skipped * row, how, deadline());
  });
}

void Cluster::begin_step(std::uint64_t step) {
  for (const auto& server : servers_) {
    server->link->begin_step(step, deadline());
    server->step = options_.server.mode == Mode::sync ? server->link->figures().sync_step : step;
  }
}

void Cluster::end_step(double weight) {
  for (const auto& server : servers_) server->link->end_step(server->step, weight, deadline());
  if (options_.server.mode == Mode::sync) flush();
}

void Cluster::flush() {
  for (const auto& server : servers_) server->link->flush(deadline());
}

ServerFigures Cluster::figures() { return servers_.front()->link->figures(); }

ServerFigures Cluster::all_figures() {
  ServerFigures all = figures();
  for (std::size_t server = 1; server < servers_.size(); ++server) {
    const ServerFigures other = servers_[server]->link->figures();
    all.recovered += other.recovered;
    all.queued += other.queued;
    for (std::size_t worker = 0; worker < std::min(all.workers.size(), other.workers.size()); ++worker) {
      WorkerFigures& sum = all.workers[worker];
      sum.refused += other.workers[worker].refused;
      sum.late = std::max(sum.late, other.workers[worker].late);
      sum.lost_steps = std::max(sum.lost_steps, other.workers[worker].lost_steps);
    }
  }
  return all;
}

void Cluster::hold() {
  for (const auto& server : servers_) server->link->hold(deadline());
}

void Cluster::release() {
  for (const auto& server : servers_) server->link->release();
}

std::uint64_t Cluster::read_state(std::size_t variable, int slot, std::span<float> to) {
  const std::size_t row = variables_[variable].row_elements;
  std::uint64_t updates = 0;
  for_parts(variable, [&](Link& link, const Shard& shard, std::size_t) {
    const std::span<float> part = to.subspan(shard.first * row, shard.rows * row);
    updates = std::max(updates, link.read_state(shard.number, slot, part));
  });
  return updates;
}

void Cluster::write_state(std::size_t variable, int slot, std::span<const float> from, std::uint64_t updates,
                          const OptimizerSpec& spec) {
  const std::size_t row = variables_[variable].row_elements;
  for_parts(variable, [&](Link& link, const Shard& shard, std::size_t) {
    link.write_state(shard.number, slot, from.subspan(shard.first * row, shard.rows * row), updates, spec);
  });
}

void Cluster::wait_for_others() {
  for (const auto& server : servers_) server->link->rest();
  while (true) {
    // Asks the server instead of reading the shared memory, which stays unchanged after the server has
    // exited.
    const ServerFigures now = servers_.front()->asker->figures(deadline());
    bool done = true;
    for (std::size_t worker = 0; worker < now.workers.size(); ++worker) {
      const WorkerPhase phase = now.workers[worker].phase;
      done =
          done && (worker == options_.worker || phase == WorkerPhase::finished || phase == WorkerPhase::lost);
    }
    if (done) return;
    std::this_thread::sleep_for(kPollWorkers);
  }
}

void Cluster::leave() {
  flush();
  // All pushes of this worker are applied, so the wait for a server that may have exited is short.
  for (const auto& server : servers_) {
    server->asker->ask(
        Operation::goodbye, [](control::MessageWriter&) {},
        Deadline::after(std::min<Duration>(options_.timeout, kGoodbye)));
  }
}

}  // namespace rondo::server
