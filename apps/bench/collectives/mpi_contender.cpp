#include "apps/bench/collectives/contender.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include "apps/bench/harness/processes.h"
#include "apps/common/child_output.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/command.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;

constexpr auto kAnswerTimeout = std::chrono::seconds(60);

fs::path peer_program() { return program_beside("rondo-bench-openmpi"); }

// Controls the ranks of an MPI job.
class MpiJob {
 public:
  MpiJob(const MpiPeer& peer, int ranks) : name_(peer.name) {
    for (int rank = 0; rank < ranks; ++rank) commands_.push_back(open_fifo(str("command.", rank)));
    answer_ = open_fifo("answer");
    start(peer, ranks);
  }
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  ~MpiJob() {
    for (const int fifo : commands_) {
      [[maybe_unused]] const auto written = write(fifo, "quit\n", 5);
    }
    if (!wait_until_ended(std::chrono::seconds(5)) && process_ > 0) {
      kill(-process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    for (const int fifo : commands_) close(fifo);
    if (answer_ >= 0) close(answer_);
  }

  // Sends the command to every rank and returns rank 0's answer.
  std::string ask(const std::string& command) {
    const std::string line = command + "\n";
    for (const int fifo : commands_) {
      if (write(fifo, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        throw Error(str("cannot send a command to the ranks of ", name_, ": ", errno_text(errno)));
      }
    }
    const Deadline deadline = Deadline::after(kAnswerTimeout);
    std::string answer;
    while (answer.find('\n') == std::string::npos) {
      if (deadline.passed()) throw Error(str(name_, " did not answer '", command, "' within 60 s"));
      if (waitpid(process_, nullptr, WNOHANG) == process_) {
        process_ = -1;
        throw Error(str("the ranks of ", name_, " ended during '", command, "'; see their output above"));
      }
      pollfd ready{answer_, POLLIN, 0};
      if (poll(&ready, 1, 100) <= 0) continue;
      char buffer[256];
      const ssize_t count = read(answer_, buffer, sizeof(buffer));
      if (count > 0) answer.append(buffer, static_cast<std::size_t>(count));
    }
    return answer;
  }

 private:
  // Opens for both directions, which does not block until the peer opens.
  int open_fifo(const std::string& name) {
    const fs::path path = fs::path(folder_.path()) / name;
    if (mkfifo(path.c_str(), 0600) != 0)
      throw Error(str("cannot make ", path.string(), ": ", errno_text(errno)));
    const int fifo = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fifo < 0) throw Error(str("cannot open ", path.string(), ": ", errno_text(errno)));
    return fifo;
  }

  void start(const MpiPeer& peer, int ranks) {
    // A folder for the launcher's files, too: two instances of mpirun that start at once in /tmp create the
    // same folder, and one fails.
    std::vector<std::string> words = {"env", str("TMPDIR=", folder_.path())};
    if (peer.launcher.empty()) {
      for (const char* word : {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"})
        words.emplace_back(word);
      words.insert(words.end(), {str(ranks), peer_program().string(), folder_.path()});
    } else {
      words.insert(words.end(), {peer.launcher, str(ranks), folder_.path()});
    }
    const std::vector<char*> arguments = exec_words(words);
    process_ = fork();
    if (process_ < 0) throw Error(str("cannot start the ranks of ", name_, ": ", errno_text(errno)));
    if (process_ == 0) {
      // A separate process group, so that all of it can be stopped. It ends if this rank is killed.
      setpgid(0, 0);
      // This rank is pinned. Its children pin themselves, each to one of all processors.
      cpu_set_t all;
      std::memset(&all, 0xff, sizeof(all));
      sched_setaffinity(0, sizeof(all), &all);
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      dup2(STDERR_FILENO, STDOUT_FILENO);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    setpgid(process_, process_);
  }

  bool wait_until_ended(Duration longest) {
    const Deadline deadline = Deadline::after(longest);
    while (process_ > 0 && !deadline.passed()) {
      if (waitpid(process_, nullptr, WNOHANG) != 0) return true;
      poll(nullptr, 0, 5);
    }
    return process_ <= 0;
  }

  const std::string name_;
  launch::ScratchDirectory folder_ = make_scratch();
  std::vector<int> commands_;
  int answer_ = -1;
  pid_t process_ = -1;
};

class MpiContender final : public Contender {
 public:
  MpiContender(const MpiPeer& peer, int rank, int ranks) : labels_{peer.name, "auto", "shm", false} {
    if (rank == 0) job_ = std::make_unique<MpiJob>(peer, ranks);
  }

  const Labels& labels() const override { return labels_; }
  bool can(const Case& what) const override { return what.dtype == at::kFloat; }

  bool prepare(const Case& what) override {
    if (job_ == nullptr) return true;
    std::istringstream answer(
        job_->ask(str("prepare ", what.operation, " ", what.bytes.count, " ", what.fresh ? 1 : 0)));
    int right = 0;
    answer >> right >> estimate_us_;
    return right == 1;
  }
  double estimate_us() override { return estimate_us_; }
  void run(const Burst& burst) override {
    if (job_ != nullptr) job_->ask(str("run ", burst.batch, " ", burst.samples));
  }
  Timing finish() override {
    Timing timing;
    if (job_ == nullptr) return timing;
    std::istringstream answer(job_->ask("finish"));
    answer >> timing.p50_us >> timing.min_us >> timing.samples;
    return timing;
  }

 private:
  const Labels labels_;
  std::unique_ptr<MpiJob> job_;  // on rank 0 only
  double estimate_us_ = 0;
};

}  // namespace

std::string why_no_openmpi() {
  constexpr const char* kCure =
      "apt-get install openmpi-bin libopenmpi-dev  (or make setup-peers), then build again";
  try {
    launch::find_program("mpirun");
  } catch (const UsageError&) {
    return str("mpirun is not on PATH: ", kCure);
  }
  if (access(peer_program().c_str(), X_OK) != 0)
    return str(peer_program().string(), " was not built: ", kCure);
  return {};
}

std::unique_ptr<Contender> make_mpi_contender(const MpiPeer& peer, int rank, int ranks) {
  return std::make_unique<MpiContender>(peer, rank, ranks);
}

}  // namespace rondo::bench
