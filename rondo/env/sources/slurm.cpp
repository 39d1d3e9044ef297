// Slurm's srun: https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
#include "rondo/env/sources/slurm.h"

#include <cctype>
#include <charconv>
#include <limits>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

constexpr std::size_t kMostHosts = 1'000'000;

// A cursor over a compressed list that reports its position in errors.
class Reader {
 public:
  Reader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  char next() { return text_[at_++]; }
  bool accept(char c) {
    if (peek() != c || done()) return false;
    ++at_;
    return true;
  }
  std::string_view digits() {
    const std::size_t begin = at_;
    while (!done() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
    if (begin == at_) fail("expected a number");
    if (at_ - begin > 9) fail("a number of more than 9 digits");
    return text_.substr(begin, at_ - begin);
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(str(what_, ": '", text_, "' is malformed at character ", at_ + 1, ": ", why));
  }

 private:
  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0;
};

std::string padded(long long number, std::size_t width) {
  std::string text = std::to_string(number);
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

// Reads the inside of a bracket, after '[': "10,20,25-27]".
std::vector<std::string> read_bracket(Reader& reader) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = reader.digits();
    const long long low = parse_integer(first, "node list");
    long long high = low;
    if (reader.accept('-')) high = parse_integer(reader.digits(), "node list");
    if (high < low) reader.fail(str("the range ", low, "-", high, " is descending"));
    if (numbers.size() + static_cast<std::size_t>(high - low) >= kMostHosts) reader.fail("too many hosts");
    for (long long number = low; number <= high; ++number) numbers.push_back(padded(number, first.size()));
  } while (reader.accept(','));
  if (!reader.accept(']')) reader.fail("expected ',', '-' or ']'");
  return numbers;
}

// Reads one comma-separated entry: text and brackets in any order.
std::vector<std::string> read_entry(Reader& reader) {
  std::vector<std::string> names = {""};
  bool any = false;
  while (!reader.done() && reader.peek() != ',') {
    any = true;
    const char c = reader.next();
    if (c == '[') {
      const std::vector<std::string> numbers = read_bracket(reader);
      if (names.size() * numbers.size() > kMostHosts) reader.fail("too many hosts");
      std::vector<std::string> product;
      product.reserve(names.size() * numbers.size());
      for (const std::string& name : names) {
        for (const std::string& number : numbers) product.push_back(name + number);
      }
      names = std::move(product);
    } else if (c == ']' || std::isspace(static_cast<unsigned char>(c))) {
      reader.fail(str("unexpected '", c, "'"));
    } else {
      for (std::string& name : names) name += c;
    }
  }
  if (!any) reader.fail("an empty host name");
  return names;
}

struct SplitName {
  std::string prefix;
  std::string digits;  // trailing digits, at most 9
};

SplitName split_name(const std::string& host) {
  std::size_t begin = host.size();
  while (begin > 0 && host.size() - begin < 9 && std::isdigit(static_cast<unsigned char>(host[begin - 1])))
    --begin;
  return {host.substr(0, begin), host.substr(begin)};
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list, std::string_view what) {
  std::vector<std::string> hosts;
  if (list.empty()) return hosts;
  Reader reader(list, what);
  do {
    for (std::string& name : read_entry(reader)) hosts.push_back(std::move(name));
    if (hosts.size() > kMostHosts) reader.fail("too many hosts");
  } while (reader.accept(','));
  return hosts;
}

std::string compress_node_list(const std::vector<std::string>& hosts) {
  std::vector<std::string> entries;
  std::size_t begin = 0;
  while (begin < hosts.size()) {
    const SplitName first = split_name(hosts[begin]);
    std::vector<std::string> ranges;
    std::size_t at = begin;
    while (at < hosts.size() && !first.digits.empty()) {
      const SplitName low = split_name(hosts[at]);
      if (low.prefix != first.prefix || low.digits.size() != first.digits.size()) break;
      const long long low_number = parse_integer(low.digits, "host name");
      std::size_t end = at + 1;
      while (end < hosts.size() &&
             hosts[end] ==
                 first.prefix + padded(low_number + static_cast<long long>(end - at), low.digits.size()) &&
             split_name(hosts[end]).digits.size() == low.digits.size()) {
        ++end;
      }
      ranges.push_back(end == at + 1 ? low.digits : low.digits + "-" + split_name(hosts[end - 1]).digits);
      at = end;
    }
    if (at <= begin + 1) {
      entries.push_back(hosts[begin]);
      at = begin + 1;
    } else {
      entries.push_back(first.prefix + "[" + join(ranges, ",") + "]");
    }
    begin = at;
  }
  return join(entries, ",");
}

std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view what) {
  std::vector<int> counts;
  Reader reader(text, what);
  do {
    const auto count = static_cast<int>(parse_integer(reader.digits(), what));
    long long times = 1;
    if (reader.accept('(')) {
      if (!reader.accept('x')) reader.fail("expected 'x'");
      times = parse_integer(reader.digits(), what);
      if (!reader.accept(')')) reader.fail("expected ')'");
    }
    if (counts.size() + static_cast<std::size_t>(times) > kMostHosts) reader.fail("too many hosts");
    counts.insert(counts.end(), static_cast<std::size_t>(times), count);
  } while (reader.accept(','));
  if (!reader.done()) reader.fail("expected ',' or '('");
  return counts;
}

namespace {

// First step number that Slurm uses for itself: batch scripts (0xfffffffb), interactive shells (0xfffffffa).
constexpr unsigned long long kFirstOwnStep = 0xfffffff0;

}  // namespace

bool is_slurm_task(const EnvironmentMap& environment) {
  if (!lookup(environment, "SLURM_PROCID")) return false;
  auto step = lookup(environment, "SLURM_STEP_ID");
  if (!step) step = lookup(environment, "SLURM_STEPID");
  if (!step) return false;
  unsigned long long number = 0;
  std::from_chars(step->data(), step->data() + step->size(), number);
  return number < kFirstOwnStep;
}

bool is_in_slurm_job(const EnvironmentMap& environment) {
  return lookup(environment, "SLURM_JOB_ID").has_value();
}

std::optional<int> tasks_without_srun(const EnvironmentMap& environment) {
  const bool is_started = lookup(environment, "RANK") || lookup(environment, "OMPI_COMM_WORLD_RANK") ||
                          lookup(environment, "PMI_RANK");
  if (is_started || is_slurm_task(environment) || !is_in_slurm_job(environment)) return std::nullopt;
  const auto tasks = integer_variable(environment, "SLURM_NTASKS");
  return tasks && *tasks > 1 ? tasks : std::nullopt;
}

bool is_requeued_slurm_job(const EnvironmentMap& environment) {
  return is_in_slurm_job(environment) && integer_variable(environment, "SLURM_RESTART_COUNT").value_or(0) > 0;
}

namespace {

// An environment variable with its value.
struct Variable {
  std::string name;
  std::optional<std::string> value;
  bool is_of_step = false;

  std::string show() const { return str(name, "=", value.value_or("")); }
};

// Returns the job step's variable if it is set, else the job's.
Variable first_set(const EnvironmentMap& environment, std::string_view step, std::string_view job) {
  if (auto value = lookup(environment, step)) return {std::string(step), std::move(value), true};
  return {std::string(job), lookup(environment, job), false};
}

// Returns the host list of the job, under Slurm's current or former variable name.
Variable list_of_job(const EnvironmentMap& environment) {
  const bool is_former = !lookup(environment, "SLURM_JOB_NODELIST") && lookup(environment, "SLURM_NODELIST");
  const std::string name = is_former ? "SLURM_NODELIST" : "SLURM_JOB_NODELIST";
  return {name, lookup(environment, name), false};
}

// Variables that describe the number of tasks on each host.
struct Layout {
  explicit Layout(const EnvironmentMap& environment)
      : tasks(first_set(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
        nodes(first_set(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")),
        tasks_per_node(first_set(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")),
        node_list(first_set(environment, "SLURM_STEP_NODELIST", list_of_job(environment).name)) {
    if (tasks_per_node.value) counts = expand_tasks_per_node(*tasks_per_node.value, named(tasks_per_node));
    if (node_list.value) hosts = expand_node_list(*node_list.value, named(node_list));
  }

  static std::string named(const Variable& variable) { return str("environment variable ", variable.name); }

  Variable tasks, nodes, tasks_per_node, node_list;
  std::vector<int> counts;         // number of tasks of each host
  std::vector<std::string> hosts;  // host names
};

// Throws UsageError if `list`, which describes `found` entries (`what`), contradicts `count`. A step's
// variable is not compared with a job's: they may differ.
void require_equal(const EnvironmentMap& environment, const Variable& count, const Variable& list,
                   long long found, const char* what) {
  if (!count.value || !list.value || count.is_of_step != list.is_of_step) return;
  if (integer_variable(environment, count.name) == found) return;
  throw UsageError(str("Slurm's variables contradict each other: ", count.show(), " but ", list.show(),
                       " describes ", found, " ", what, "; unset the one that is wrong"));
}

void check(const EnvironmentMap& environment, const Layout& layout) {
  const auto hosts = static_cast<long long>(layout.hosts.size());
  const auto counted_hosts = static_cast<long long>(layout.counts.size());
  const long long tasks = std::accumulate(layout.counts.begin(), layout.counts.end(), 0LL);
  require_equal(environment, layout.nodes, layout.node_list, hosts, "hosts");
  require_equal(environment, layout.nodes, layout.tasks_per_node, counted_hosts, "hosts");
  require_equal(environment, layout.tasks, layout.tasks_per_node, tasks, "tasks");
}

// Sets the host of rank 0 and a unique name for the job.
void set_meeting_place(Settings& settings, const EnvironmentMap& environment,
                       const std::vector<std::string>& hosts, const std::string& list, std::string step) {
  if (!hosts.empty()) settings.set_default(Field::master_addr, hosts.front(), "first host of " + list);
  if (const auto job = lookup(environment, "SLURM_JOB_ID")) {
    if (!step.empty()) step.insert(0, ".");
    settings.set_default(Field::run_id, str("slurm-", *job, step),
                         step.empty() ? "SLURM_JOB_ID" : "SLURM_JOB_ID and SLURM_STEP_ID");
  }
}

// Returns whether mpirun or Hydra started this process. Inside a job, the step's variables then describe its
// daemon on this host.
bool has_launcher_of_mpi(const EnvironmentMap& environment) {
  return lookup(environment, "OMPI_COMM_WORLD_RANK") || lookup(environment, "HYDI_CONTROL_FD");
}

Settings read_slurm(const EnvironmentMap& environment, const Settings& higher) {
  Settings settings;
  const bool has_mpi = has_launcher_of_mpi(environment);
  if (has_mpi || !is_slurm_task(environment)) {
    // A batch script or a shell is a single process, unless another launcher says that it is one of several.
    const bool is_one_of_several = higher.integer(Field::world_size).value_or(1) > 1;
    const Variable list = list_of_job(environment);
    if (is_one_of_several && list.value) {
      set_meeting_place(settings, environment, expand_node_list(*list.value, Layout::named(list)), list.name,
                        "");
    }
    return settings;
  }
  const Layout layout(environment);
  check(environment, layout);
  settings.take_integer(Field::rank, environment, "SLURM_PROCID");
  settings.take_integer(Field::world_size, environment, layout.tasks.name);
  settings.take_integer(Field::local_rank, environment, "SLURM_LOCALID");
  settings.take_integer(Field::node_rank, environment, "SLURM_NODEID");
  settings.take_integer(Field::num_nodes, environment, layout.nodes.name);
  const auto node = settings.integer(Field::node_rank);
  const auto world = settings.integer(Field::world_size);
  // The job's list describes the allocation. It does not apply to a step with fewer tasks.
  const bool is_of_this_step =
      !world || std::accumulate(layout.counts.begin(), layout.counts.end(), 0LL) == *world;
  if (node && is_of_this_step && *node < static_cast<int>(layout.counts.size())) {
    settings.set(Field::local_world_size, layout.counts[static_cast<std::size_t>(*node)],
                 layout.tasks_per_node.name);
  }
  set_meeting_place(settings, environment, layout.hosts, layout.node_list.name,
                    lookup(environment, "SLURM_STEP_ID").value_or(""));
  settings.take_integer(Field::restart_count, environment, "SLURM_RESTART_COUNT");
  return settings;
}

}  // namespace

const Source slurm_source = {"slurm", read_slurm, nullptr};

}  // namespace rondo::env
