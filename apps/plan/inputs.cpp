#include "apps/plan/inputs.h"

#include <csignal>
#include <thread>

#include <unistd.h>

#include "apps/common/flag_checks.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/cost/profile_json.h"
#include "rondo/cost/synthetic.h"

namespace rondo {

void add_planning_flags(CLI::App& app, PlanningInputs& inputs) {
  const std::string what = "Input";
  app.add_option("PROFILE", inputs.profile, "profile file that 'rondo profile' wrote")
      ->check(existing_path())
      ->group(what);
  app.add_option("--profile", inputs.profile, "the same")
      ->type_name("FILE")
      ->check(existing_path())
      ->group(what);
  app.add_option("--synthetic", inputs.synthetic,
                 "computed profile, such as "
                 "gpt:layers=48,dim=4096,batch=1,seq=2048,flops=140e12,rate=25e9,latency=10us")
      ->type_name("MODEL")
      ->group(what);
  app.add_option("--random-profile", inputs.random_profile, "random profile with this seed, for tests")
      ->type_name("SEED")
      ->check(not_negative_number())
      ->group(what);
  app.add_option("--random-units", inputs.random_units, "number of units of --random-profile; default 48")
      ->type_name("N")
      ->check(rondo::between(1, 10000))
      ->group(what);
  app.add_option("--ranks", inputs.options.ranks, "number of processes; default 2")
      ->type_name("N")
      ->check(positive_number())
      ->group(what);
  app.add_option("--shard-ranks", inputs.options.shard_group,
                 "ranks per shard group (hybrid sharding); default: all")
      ->type_name("N")
      ->check(not_negative_number())
      ->group(what);
  app.add_option("--gradient-accumulation-steps", inputs.options.micro_batches,
                 "forward and backward passes per step; default 1")
      ->type_name("N")
      ->check(positive_number())
      ->group(what);
  app.add_option("--micro-batches", inputs.micro_batches, "micro-batches per batch of a pipeline")
      ->type_name("N")
      ->check(positive_number())
      ->group(what);
  app.add_option("--prefetch-window", inputs.options.prefetch_window,
                 "maximum number of slots that a gather starts ahead of its use; default 4")
      ->type_name("N")
      ->check(positive_number())
      ->group(what);
  app.add_option("--segments", inputs.options.segments_per_collective,
                 "maximum number of segments per collective; default 16")
      ->type_name("N")
      ->check(positive_number())
      ->group(what);
  app.add_option("--segment-size", inputs.segment_bytes, "segment size, instead of --segments")
      ->type_name("SIZE")
      ->group(what);
  app.add_option("--buffers", inputs.buffers,
                 "granularity of gather and gradient memory: 'unit' (flat buffers) or 'segment'")
      ->type_name("WHAT")
      ->group(what);
}

cost::Profile load_profile(const PlanningInputs& inputs) {
  const int sources = (inputs.profile.empty() ? 0 : 1) + (inputs.synthetic.empty() ? 0 : 1) +
                      (inputs.random_profile.has_value() ? 1 : 0);
  if (sources != 1)
    throw UsageError("give one of PROFILE (a file), --synthetic MODEL and --random-profile SEED");
  if (!inputs.profile.empty()) return cost::read_profile(inputs.profile);
  if (!inputs.synthetic.empty()) return cost::synthetic_profile(inputs.synthetic, inputs.options.ranks);
  return cost::random_profile(*inputs.random_profile, inputs.random_units, inputs.options.ranks);
}

cost::StepOptions step_options(const PlanningInputs& inputs) {
  cost::StepOptions options = inputs.options;
  if (inputs.buffers == "segment") {
    options.buffers = cost::Buffers::segment;
  } else if (inputs.buffers != "unit") {
    throw UsageError(str("--buffers ", inputs.buffers, " is not one of unit, segment"));
  }
  if (!inputs.segment_bytes.empty())
    options.segment_bytes = parse_bytes(inputs.segment_bytes, "--segment-size").count;
  return options;
}

struct InterruptWatch::Thread {
  std::thread thread;
  sigset_t signals{};
};

InterruptWatch::InterruptWatch() : thread_(std::make_unique<Thread>()) {
  sigemptyset(&thread_->signals);
  sigaddset(&thread_->signals, SIGINT);
  sigaddset(&thread_->signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &thread_->signals, nullptr);
  thread_->thread = std::thread([signals = thread_->signals, token = token_, end = end_] {
    const timespec pause{0, 50'000'000};
    Deadline patience = Deadline::never();
    int last = SIGTERM;
    while (!end.cancelled()) {
      if (patience.passed()) {
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
        kill(getpid(), last);
      }
      const int signal = sigtimedwait(&signals, nullptr, &pause);
      if (signal < 0) continue;
      last = signal;
      if (token.cancelled()) patience = Deadline::after(Duration::zero());  // second signal
      if (signal == SIGTERM && patience.is_never()) patience = Deadline::after(kPatience);
      token.cancel();
    }
  });
}

InterruptWatch::~InterruptWatch() {
  end_.cancel();
  thread_->thread.join();
}

}  // namespace rondo
