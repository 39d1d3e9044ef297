#include "rondo/train/log_targets/otlp/otlp_exporter.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rondo/base/blocked_signals.h"
#include "rondo/base/log.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/control/http_client.h"
#include "rondo/format/otlp_metrics.h"

namespace rondo {
namespace {

constexpr Duration kFirstBackoff = std::chrono::seconds(1);
constexpr Duration kLongestBackoff = std::chrono::seconds(30);
constexpr Duration kSpanDelay =
    std::chrono::seconds(5);  // time after which spans are sent even if they do not fill a request
constexpr Duration kLimitOfDestructor = std::chrono::seconds(1);

bool is_retryable(int status) {
  return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

bool is_success(int status) { return status >= 200 && status < 300; }

control::HttpClient::Options client_options(const OtlpSettings::Signal& signal) {
  control::HttpClient::Options options{.url = signal.url,
                                       .headers = {{"Content-Type", "application/json"}},
                                       .timeout = signal.timeout,
                                       .certificates = signal.certificates};
  options.headers.insert(options.headers.end(), signal.headers.begin(), signal.headers.end());
  return options;
}

// The requests of one signal. Used by the exporter's thread alone.
class Requests {
 public:
  Requests(const OtlpSettings::Signal& signal, std::string items)
      : client_(client_options(signal)), url_(control::without_user(signal.url)), items_(std::move(items)) {}

  bool has_pending() const { return !body_.empty(); }
  TimePoint not_before() const { return not_before_; }
  std::int64_t dropped() const { return dropped_; }
  const std::string& items() const { return items_; }

  // Sets the body of the next request, and drops one that is still pending.
  void set_pending(std::string body, std::int64_t count) {
    drop_pending();
    body_ = std::move(body);
    count_ = count;
  }
  void drop_pending() {
    if (has_pending()) dropped_ += count_;
    body_.clear();
  }
  void add_dropped(std::int64_t count) { dropped_ += count; }
  // Makes the last attempt before the exporter ends: at once, unless the collector has requested a pause.
  void hurry() {
    if (!was_asked_to_wait_) not_before_ = TimePoint::min();
  }

  // Sends the pending request.
  void send(const std::function<bool()>& cancelled) {
    const control::HttpResponse response = client_.post(body_, cancelled);
    if (is_success(response.status)) return accept(response);
    const std::string reason =
        response.status == 0 ? response.error
                             : str("HTTP ", response.status, " ", printable(response.body.substr(0, 200)));
    if (!is_retryable(response.status)) {
      warn(str(reason, "; the data is dropped"));
      drop_pending();
      return;
    }
    warn(str(reason, "; training continues, and sending is retried"));
    was_asked_to_wait_ = response.retry_after > Duration::zero();
    const Duration pause = was_asked_to_wait_ ? response.retry_after : next_backoff();
    not_before_ = Clock::now() + std::min(pause, kLongestDuration);
  }

 private:
  void accept(const control::HttpResponse& response) {
    const otlp::PartialSuccess partial = otlp::read_response(response.body);
    if (partial.rejected > 0) {
      warn(str("the collector refuses ", partial.rejected, " ", items_, ": ", printable(partial.message)));
      dropped_ += partial.rejected;
    } else {
      failing_ = false;
    }
    body_.clear();
    backoff_ = kFirstBackoff;
    not_before_ = TimePoint::min();
    was_asked_to_wait_ = false;
  }

  // Doubles after each failure. A random part of one fifth keeps many runs from retrying at the same time.
  Duration next_backoff() {
    std::uniform_real_distribution<double> part(0.8, 1.2);
    const Duration pause = std::chrono::duration_cast<Duration>(backoff_ * part(random_));
    backoff_ = std::min(backoff_ * 2, kLongestBackoff);
    return pause;
  }

  void warn(const std::string& problem) {
    if (!failing_) log::warning("OpenTelemetry: ", url_, ": ", problem);
    failing_ = true;
  }

  control::HttpClient client_;
  std::string url_, items_;
  std::string body_;        // pending body; empty: none
  std::int64_t count_ = 0;  // number of its data points or spans
  std::int64_t dropped_ = 0;
  TimePoint not_before_ = TimePoint::min();
  Duration backoff_ = kFirstBackoff;
  bool was_asked_to_wait_ = false;
  bool failing_ = false;  // requests fail, and a warning was logged
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace

struct OtlpExporter::State {
  State(const OtlpSettings& settings, otlp::Attributes attributes)
      : resource(std::move(attributes)),
        interval(settings.interval),
        metrics_requests(settings.metrics, "data points"),
        trace_requests(settings.traces, "spans") {}

  const otlp::Attributes resource;
  const Duration interval;
  const otlp::Time begin = otlp::now();

  std::mutex mutex;  // protects the fields up to the next comment
  std::condition_variable wake;
  otlp::TrainingMetrics metrics;
  std::deque<otlp::Span> spans;
  TimePoint oldest_span;
  std::int64_t dropped_spans = 0;  // number of spans dropped because the queue was full
  bool finishes = false;
  TimePoint finish_at;    // with `finishes`
  bool has_news = false;  // the thread must check its work again before the end of its wait

  std::atomic<std::int64_t> dropped = 0;  // total of dropped data, valid after the thread has ended
  // The thread's.
  Requests metrics_requests;
  Requests trace_requests;
  TimePoint last_metrics = Clock::now();
  std::thread thread;

  // Time at which spans are to be sent. Requires `mutex`.
  TimePoint spans_due() const {
    if (spans.empty()) return TimePoint::max();
    return finishes || spans.size() >= kSpansOfARequest ? TimePoint::min() : oldest_span + kSpanDelay;
  }
  // Time at which metrics are to be collected. Requires `mutex`.
  TimePoint metrics_due() const {
    if (finishes) return metrics.changed() ? TimePoint::min() : TimePoint::max();
    return last_metrics + interval;
  }

  // Data of the next requests. Requests are encoded without `mutex`, because callers wait for it.
  struct Due {
    std::vector<otlp::Metric> metrics;
    std::vector<otlp::Span> spans;
  };
  // Under `mutex`.
  Due take_due() {
    Due due;
    const TimePoint now = Clock::now();
    if (now >= metrics_due()) {
      last_metrics = now;
      if (metrics.changed()) due.metrics = metrics.metrics();
    }
    if (trace_requests.has_pending() || now < spans_due()) return due;
    while (!spans.empty() && due.spans.size() < kSpansOfARequest) {
      due.spans.push_back(std::move(spans.front()));
      spans.pop_front();
    }
    return due;
  }
  // Without `mutex`.
  void encode(const Due& due) {
    if (!due.metrics.empty()) {
      metrics_requests.set_pending(otlp::metrics_request(resource, due.metrics, begin, otlp::now()),
                                   otlp::count_points(due.metrics));
    }
    if (!due.spans.empty()) {
      trace_requests.set_pending(otlp::traces_request(resource, due.spans),
                                 static_cast<std::int64_t>(due.spans.size()));
    }
  }

  // Returns the time of the next work. Requires `mutex`.
  TimePoint next_wake() const {
    TimePoint next = finishes ? finish_at : TimePoint::max();
    for (const Requests* requests : {&metrics_requests, &trace_requests}) {
      if (requests->has_pending()) next = std::min(next, requests->not_before());
    }
    if (!trace_requests.has_pending()) next = std::min(next, spans_due());
    return std::min(next, metrics_due());
  }

  void run() {
    const auto cancelled = [this] {
      const std::lock_guard lock(mutex);
      return finishes && Clock::now() >= finish_at;
    };
    bool hurried = false;
    std::unique_lock lock(mutex);
    while (true) {
      if (finishes && !std::exchange(hurried, true)) {
        metrics_requests.hurry();
        trace_requests.hurry();
      }
      const Due due = take_due();
      lock.unlock();
      encode(due);
      lock.lock();
      const bool is_done = !metrics_requests.has_pending() && !trace_requests.has_pending() &&
                           spans.empty() && !metrics.changed();
      if (finishes && (is_done || Clock::now() >= finish_at)) break;
      bool sent = false;
      for (Requests* requests : {&metrics_requests, &trace_requests}) {
        if (!requests->has_pending() || Clock::now() < requests->not_before()) continue;
        lock.unlock();
        requests->send(cancelled);
        lock.lock();
        sent = true;
      }
      if (sent) continue;
      // Does not wait for a pause beyond the limit.
      if (finishes && next_wake() >= finish_at) break;
      wake.wait_until(lock, next_wake(), [this] { return has_news; });
      has_news = false;
    }
    metrics_requests.drop_pending();
    trace_requests.drop_pending();
    trace_requests.add_dropped(dropped_spans + static_cast<std::int64_t>(spans.size()));
    for (const Requests* requests : {&metrics_requests, &trace_requests}) {
      dropped += requests->dropped();
      if (requests->dropped() > 0)
        log::warning("OpenTelemetry: ", requests->dropped(), " ", requests->items(), " were not delivered");
    }
  }
};

OtlpExporter::OtlpExporter(const OtlpSettings& settings, otlp::Attributes resource)
    : state_(std::make_unique<State>(settings, std::move(resource))) {
  // Blocks signals, which other threads handle: SIGPIPE of a connection, and requests to stop.
  const BlockedSignals blocked;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

OtlpExporter::~OtlpExporter() { finish(kLimitOfDestructor); }

void OtlpExporter::add(std::span<const MetricsRow> rows) {
  const std::lock_guard lock(state_->mutex);
  state_->metrics.add(rows);
}

void OtlpExporter::add(otlp::Span span) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    if (state.spans.size() >= kMostSpans) {
      ++state.dropped_spans;
      return;
    }
    if (state.spans.empty()) state.oldest_span = Clock::now();
    state.spans.push_back(std::move(span));
    // The first span starts the delay; a full request ends it.
    if (state.spans.size() != 1 && state.spans.size() != kSpansOfARequest) return;
    state.has_news = true;
  }
  state.wake.notify_one();
}

void OtlpExporter::begin_finish(Duration limit) {
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->finishes, true)) return;
    state_->finish_at = Clock::now() + limit;
    state_->has_news = true;
  }
  state_->wake.notify_one();
}

void OtlpExporter::finish(Duration limit) {
  begin_finish(limit);
  if (state_->thread.joinable()) state_->thread.join();
}

std::int64_t OtlpExporter::dropped() const { return state_->dropped; }

}  // namespace rondo
