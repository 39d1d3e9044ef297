#include "rondo/server/service.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"
#include "rondo/env/launcher_files.h"
#include "rondo/server/local_link.h"
#include "rondo/server/protocol.h"
#include "rondo/server/remote_link.h"
#include "rondo/server/updater.h"

namespace rondo::server {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);  // interval between checks for lost workers
constexpr auto kSleep = std::chrono::milliseconds(20);
constexpr auto kAbsent = static_cast<std::uint32_t>(WorkerPhase::absent);

// The control thread's state of a worker.
struct Peer {
  std::unique_ptr<PeerWatch> watch;  // for a worker on this host
  std::unique_ptr<LocalLink> proxy;  // for a worker on another host: executes its requests
  TimePoint heard{};                 // time of the last request
  std::uint64_t answered = 0;        // number of the last request, and its answer
  std::string answer;
  std::string name;  // name with host, after hello to this process
};

}  // namespace

struct Service::State {
  State(const ServiceOptions& given, const control::JobSecret& secret)
      : options(given),
        listener(given.address, secret),
        name(str("server ", given.index, " on host ", host_name())),
        ended_workers(given.ended_workers) {}

  ServiceOptions options;
  control::Listener listener;
  std::string name;
  env::EndedWorkers ended_workers;
  Deadline absence = Deadline::never();  // deadline for workers that have not connected
  std::optional<ServerMemory> memory;
  std::mutex applying;  // held while updates are applied
  std::atomic<bool> applying_is_wanted = false;
  std::unique_ptr<Updater> updater;
  std::jthread thread;  // applies updates
  std::array<Peer, kMostWorkers> peers;

  void open_memory();
  void create(const std::vector<VariableSpec>& variables, const ServerOptions& server_options);
  void begin();
  void watch(std::size_t worker);
  std::string answer(const control::Request& request);
  void serve(control::MessageReader& reader, const RequestHead& head, control::MessageWriter& reply);
  void hello(control::MessageReader& reader, const RequestHead& head, control::MessageWriter& reply);
  void look_for_losses();
  void look_for_absent(std::size_t worker);
  bool ended_before_it_came(std::size_t worker) const;
  std::unique_lock<std::mutex> stop_applying();
  void settle(std::size_t worker, WorkerPhase phase);
  std::uint64_t waiting_steps(std::size_t worker) const;
  void lose(std::size_t worker);
  void take_back(std::size_t worker);
  void discard_pushes(std::size_t worker);
  bool is_there(std::size_t worker) const {
    const WorkerPhase phase = memory->phase(worker);
    return phase == WorkerPhase::live || phase == WorkerPhase::resting;
  }
  std::string name_of(std::size_t worker) const {
    return peers[worker].name.empty() ? str("worker ", worker) : peers[worker].name;
  }
  bool all_are_done() const;
};

// Opens the memory file of an earlier server process of this job, if it has content.
void Service::State::open_memory() {
  if (options.memory.empty()) return;
  const int file = ::open(options.memory.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    throw DataError(str(name, " cannot open its memory ", options.memory, ": ", errno_text(errno), " (",
                        kMemoryVariable, ")"));
  }
  const off_t size = lseek(file, 0, SEEK_END);
  if (size > 0) {
    auto mapped = std::make_shared<SharedMemory>(SharedMemory::adopt(file));
    try {
      memory = ServerMemory::open(mapped);
    } catch (const DataError&) {
      // A server was killed during the layout; the chief has received no answer yet.
    }
  }
  close(file);
  if (!memory) return;
  begin();
  log::info(name, " resumes with the variables of its predecessor");
}

void Service::State::create(const std::vector<VariableSpec>& variables, const ServerOptions& server_options) {
  const Bytes size{ServerMemory::size_of(variables, server_options)};
  std::shared_ptr<SharedMemory> mapped;
  if (options.memory.empty()) {
    mapped = std::make_shared<SharedMemory>(SharedMemory::create(str("rondo-", options.index), size));
  } else {
    const int file = ::open(options.memory.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0 || ftruncate(file, 0) != 0 || ftruncate(file, static_cast<off_t>(size.count)) != 0) {
      const std::string why = errno_text(errno);
      if (file >= 0) close(file);
      throw Error(
          str(name, " cannot allocate ", to_string(size), " of memory in ", options.memory, ": ", why));
    }
    mapped = std::make_shared<SharedMemory>(SharedMemory::adopt(file));
    close(file);
  }
  memory = ServerMemory::format(std::move(mapped), variables, server_options);
  begin();
}

void Service::State::begin() {
  updater = std::make_unique<Updater>(*memory);
  absence = Deadline::after(options.absence);
  // Workers that were connected before a restart do not say hello again.
  for (std::size_t worker = 0; worker < memory->workers(); ++worker) {
    peers[worker].heard = Clock::now();
    // The previous server was killed while it copied a push of this worker.
    if (memory->worker(worker).process.load() == 0) memory->worker(worker).copies.store(0);
    if (is_there(worker)) watch(worker);
  }
  thread = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      bool worked = false;
      applying_is_wanted.wait(true);
      {
        const std::lock_guard lock(applying);
        worked = updater->run_once();
      }
      if (!worked) updater->wait(kSleep);
    }
  });
}

void Service::State::watch(std::size_t worker) {
  peers[worker].watch.reset();
  const auto process = static_cast<pid_t>(memory->worker(worker).process.load());
  if (process == 0) return;
  peers[worker].watch = std::make_unique<PeerWatch>();
  peers[worker].watch->add(0, process);
}

void Service::State::hello(control::MessageReader& reader, const RequestHead& head,
                           control::MessageWriter& reply) {
  const auto pid = reader.number<std::int64_t>("process");
  const std::string host(reader.text("host", 256));
  const std::string host_called(reader.text("host name", 256));
  const bool creates = reader.number<std::uint32_t>("creates", 0, 1) != 0;
  const ServerOptions theirs = read_options(reader);
  const std::vector<VariableSpec> variables = read_variables(reader);
  reader.end();
  const std::string who = str("worker ", head.worker, " on host ", host_called);
  if (head.worker >= theirs.workers)
    throw UsageError(str(who, " says that there are ", theirs.workers, " workers"));
  if (!memory) {
    if (!creates) {
      reply.number(static_cast<std::uint32_t>(Outcome::not_yet));
      return;
    }
    create(variables, theirs);
  }
  const std::string differs = difference(memory->specs(), memory->header().options, variables, theirs);
  if (!differs.empty())
    throw MismatchError(
        str(name, " and ", who, " have different models or settings: of ", name, " ", differs), {});

  Peer& peer = peers[head.worker];
  peer.name = who;
  const WorkerPhase phase = memory->phase(head.worker);
  const bool was_there = is_there(head.worker);
  if (was_there) lose(head.worker);  // the new process connected before the end of the old one was noticed
  {
    const std::unique_lock lock = stop_applying();
    discard_pushes(head.worker);
  }
  WorkerState& worker = memory->worker(head.worker);
  if (!was_there && phase == WorkerPhase::lost && worker.phase_before.load() == kAbsent) {
    log::warning(name, ": ", who, " has joined late");
  } else if (was_there || phase == WorkerPhase::lost) {
    ++worker.returns;
    log::warning(name, ": ", who, " is back, after ", worker.clock.load(), " steps");
  }
  const bool here = host == host_identity();
  worker.process.store(here ? pid : 0);
  watch(head.worker);
  peer.proxy = here ? nullptr : std::make_unique<LocalLink>(*memory, head.worker, who, name);
  worker.phase.store(static_cast<std::uint32_t>(WorkerPhase::live));
  reply.number(static_cast<std::uint32_t>(Outcome::done))
      .number(static_cast<std::uint32_t>(here))
      .number(static_cast<std::int64_t>(getpid()))
      .number(static_cast<std::int32_t>(memory->memory()->descriptor()))
      .number(memory->header().ready.load())
      .number(worker.clock.load())
      .number(memory->header().signature);
}

void Service::State::serve(control::MessageReader& reader, const RequestHead& head,
                           control::MessageWriter& reply) {
  if (head.operation == Operation::hello) return hello(reader, head, reply);
  if (!memory || head.worker >= memory->workers())
    throw UsageError(
        str(name, " has no variables for worker ", head.worker, " yet; the worker must register first"));
  Peer& peer = peers[head.worker];
  if (memory->phase(head.worker) == WorkerPhase::lost && memory->worker(head.worker).process.load() == 0)
    take_back(head.worker);
  switch (head.operation) {
    case Operation::open:
      memory->header().ready.store(1);
      reply.number(static_cast<std::uint32_t>(Outcome::done));
      return;
    case Operation::goodbye:
      if (is_there(head.worker)) settle(head.worker, WorkerPhase::finished);
      reply.number(static_cast<std::uint32_t>(Outcome::done));
      return;
    case Operation::figures:
      reply.number(static_cast<std::uint32_t>(Outcome::done));
      write_figures(reply, LocalLink(*memory, head.worker, name, name).figures());
      return;
    default:
      // After a restart of this server, a worker on another host is still live but has no proxy.
      if (!peer.proxy)
        peer.proxy = std::make_unique<LocalLink>(*memory, head.worker, name_of(head.worker), name);
      serve_remote(*peer.proxy, reader, head, reply);
  }
}

std::string Service::State::answer(const control::Request& request) {
  RequestHead head;
  Outcome failure = Outcome::refused;
  std::string why;
  try {
    control::MessageReader reader(request.body, "a worker");
    head = read_head(reader, name, "a worker");
    Peer& peer = peers[head.worker];
    peer.heard = Clock::now();
    // The answer was lost: do not execute the request again.
    if (head.number == peer.answered && !peer.answer.empty()) return peer.answer;
    control::MessageWriter reply;
    serve(reader, head, reply);
    std::string text = reply.take();
    peer.answered = head.number;
    peer.answer = text.size() <= KiB(64).count ? text : std::string();
    return text;
  } catch (const TimeoutError&) {
    failure = Outcome::not_yet;
  } catch (const std::exception& error) {
    why = error.what();
  }
  return control::MessageWriter().number(static_cast<std::uint32_t>(failure)).text(why).take();
}

// Locks `applying`. The applying thread, which may run without pause, yields: otherwise it would take the
// mutex again before this thread wakes.
std::unique_lock<std::mutex> Service::State::stop_applying() {
  applying_is_wanted.store(true);
  std::unique_lock lock(applying);
  applying_is_wanted.store(false);
  applying_is_wanted.notify_all();
  return lock;
}

void Service::State::settle(std::size_t worker, WorkerPhase phase) {
  Header& header = memory->header();
  if (header.hold.load() == worker + 1) header.hold.store(0);
  memory->worker(worker).phase.store(static_cast<std::uint32_t>(phase));
}

// Returns the number of complete steps of a synchronous worker that wait for other workers.
std::uint64_t Service::State::waiting_steps(std::size_t worker) const {
  if (memory->header().options.mode != Mode::sync) return 0;
  const WorkerState& state = memory->worker(worker);
  const std::uint64_t head = state.head.load(std::memory_order_acquire);
  std::uint64_t steps = 0;
  for (std::uint64_t number = state.tail.load(); number < head; ++number) {
    if (memory->entry(worker, number).kind == EntryKind::end_of_step) ++steps;
  }
  return steps;
}

// Declares a worker lost. Applies its complete pushes (with sync, once the others have pushed theirs) and
// counts an unfinished step as lost. The pushes of that step stay in the ring: a worker on another host may
// only have been silent and may finish the step.
void Service::State::lose(std::size_t worker) {
  const std::unique_lock lock = stop_applying();
  WorkerState& state = memory->worker(worker);
  const bool synchronous = memory->header().options.mode == Mode::sync;
  // Applies only this worker's pushes, which are finite in number; those of the others may never end.
  const std::uint64_t pushed = state.head.load(std::memory_order_acquire);
  const auto apply = [&] {
    while (state.tail.load() < pushed && updater->run_once()) {
    }
  };
  state.phase_before.store(state.phase.load());
  if (!synchronous) apply();
  settle(worker, WorkerPhase::lost);
  if (synchronous) apply();
  state.copies.store(0);
  const std::uint64_t begun = state.begun.load(), whole = state.clock.load() + waiting_steps(worker);
  state.unfinished_steps.store(begun > whole ? begun - whole : 0);
  state.lost_steps += state.unfinished_steps.load();
  state.begun.store(whole);
}

// Discards the pushes of a worker that restarts; requires `applying`. Complete steps that still waited count
// as lost. Entries in its ring count as done, so that entry numbers stay valid.
void Service::State::discard_pushes(std::size_t worker) {
  WorkerState& state = memory->worker(worker);
  const std::uint64_t waiting = waiting_steps(worker);
  state.lost_steps += waiting;
  state.begun -= std::min(waiting, state.begun.load());
  state.tail.store(state.head.load(std::memory_order_acquire), std::memory_order_release);
  state.done.fetch_add(1);
}

// Takes back the loss of a worker on another host that was only silent. The worker continues and does not
// notice.
void Service::State::take_back(std::size_t worker) {
  WorkerState& state = memory->worker(worker);
  ++state.returns;
  const std::uint64_t steps = state.unfinished_steps.exchange(0);
  state.lost_steps -= steps;
  state.begun += steps;
  state.phase.store(state.phase_before.load());
  log::warning(name, ": ", name_of(worker), " responds again, after ", state.clock.load(), " steps");
}

void Service::State::look_for_losses() {
  if (!memory) return;
  for (std::size_t worker = 0; worker < memory->workers(); ++worker) {
    if (memory->phase(worker) == WorkerPhase::absent) look_for_absent(worker);
    if (!is_there(worker)) continue;
    Peer& peer = peers[worker];
    const bool ended = peer.watch != nullptr && !peer.watch->ended().empty();
    const bool silent = peer.watch == nullptr && Clock::now() - peer.heard > options.silence;
    if (!ended && !silent) continue;
    lose(worker);
    log::warning(name, ": ", name_of(worker), ended ? "'s process has ended" : " no longer responds",
                 " after ", memory->worker(worker).clock.load(), " steps; ",
                 memory->worker(worker).lost_steps.load(), " of its steps are lost, the others continue");
  }
}

// Declares a worker lost that has never said hello: the others would wait for it in a synchronous step and at
// the end.
void Service::State::look_for_absent(std::size_t worker) {
  const bool ended = ended_before_it_came(worker);
  if (!ended && !absence.passed()) return;
  lose(worker);
  log::warning(name, ": worker ", worker,
               ended ? " ended before it joined" : str(" did not join within ", to_string(options.absence)),
               "; the others continue");
}

// Returns whether a worker can no longer connect: one process of its group has exited.
bool Service::State::ended_before_it_came(std::size_t worker) const {
  const std::size_t processes = std::max<std::size_t>(1, options.worker_processes / memory->workers());
  return ended_workers.any_of(worker * processes, processes);
}

bool Service::State::all_are_done() const {
  if (!memory || memory->phase(0) != WorkerPhase::finished) return false;
  for (std::size_t worker = 0; worker < memory->workers(); ++worker) {
    if (is_there(worker) || memory->phase(worker) == WorkerPhase::absent) return false;
  }
  return true;
}

Service::Service(const ServiceOptions& options, const control::JobSecret& secret)
    : state_(std::make_unique<State>(options, secret)) {
  state_->open_memory();
}

Service::~Service() = default;

const std::string& Service::address() const { return state_->listener.address(); }

bool Service::serves_somebody() const {
  if (!state_->memory) return false;
  for (std::size_t worker = 0; worker < state_->memory->workers(); ++worker) {
    if (state_->is_there(worker)) return true;
  }
  return false;
}

void Service::run(const std::function<bool()>& stop) {
  State& state = *state_;
  Deadline look = Deadline::after(kLook);
  while (!stop() && !state.all_are_done()) {
    if (const auto request = state.listener.receive(kSleep))
      state.listener.answer(*request, state.answer(*request));
    if (!look.passed()) continue;
    state.look_for_losses();
    look = Deadline::after(kLook);
  }
}

}  // namespace rondo::server
