#include "rondo/server/protocol.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"

namespace rondo::server {
namespace {

constexpr std::uint32_t kProtocol = 0x72707331;
constexpr std::size_t kLongestName = 4096;
constexpr std::uint64_t kMostVariables = 1'000'000;
constexpr std::uint64_t kLargestVariable = std::uint64_t{1} << 40;

const char* to_text(Mode mode) {
  switch (mode) {
    case Mode::async:
      return "async";
    case Mode::sync:
      return "sync";
    case Mode::ssp:
      return "ssp";
  }
  return "of no known kind";
}

}  // namespace

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  return str(boot, " ", length > 0 ? space.data() : "", " ", geteuid());
}

void write_head(control::MessageWriter& writer, const RequestHead& head) {
  writer.number(kProtocol)
      .text(RONDO_VERSION)
      .number(static_cast<std::uint32_t>(head.operation))
      .number(head.worker)
      .number(head.number);
}

RequestHead read_head(control::MessageReader& reader, const std::string& own, const std::string& other) {
  if (reader.number<std::uint32_t>("protocol") != kProtocol)
    throw DataError(str(own, " got a message from ", other, " that is no request to a parameter server"));
  const std::string version(reader.text("version", 64));
  if (version != RONDO_VERSION) {
    throw MismatchError(str(own, " is of rondo ", RONDO_VERSION, ", but ", other, " is of rondo ",
                            printable(version), "; all processes of a job must be of one version"),
                        {});
  }
  RequestHead head;
  head.operation = static_cast<Operation>(
      reader.number<std::uint32_t>("operation", 0, static_cast<std::uint32_t>(Operation::last_operation)));
  head.worker = reader.number<std::uint32_t>("worker", 0, kMostWorkers - 1);
  head.number = reader.number<std::uint64_t>("number of the request");
  return head;
}

void write_options(control::MessageWriter& writer, const ServerOptions& options) {
  writer.number(static_cast<std::uint32_t>(options.mode))
      .number(options.workers)
      .number(options.staleness)
      .number(options.backup_workers);
}

ServerOptions read_options(control::MessageReader& reader) {
  ServerOptions options;
  options.mode =
      static_cast<Mode>(reader.number<std::uint32_t>("mode", 0, static_cast<std::uint32_t>(Mode::ssp)));
  options.workers = reader.number<std::uint32_t>("workers", 1, kMostWorkers);
  options.staleness = reader.number<std::uint32_t>("staleness");
  options.backup_workers = reader.number<std::uint32_t>("backup workers", 0, kMostWorkers);
  return options;
}

void write_variables(control::MessageWriter& writer, const std::vector<VariableSpec>& variables) {
  writer.number(static_cast<std::uint64_t>(variables.size()));
  for (const VariableSpec& variable : variables) {
    writer.text(variable.name)
        .number(variable.rows)
        .number(variable.row_elements)
        .number(static_cast<std::uint32_t>(variable.sparse));
  }
}

std::vector<VariableSpec> read_variables(control::MessageReader& reader) {
  const auto count = reader.number<std::uint64_t>("number of variables", 0, kMostVariables);
  std::vector<VariableSpec> variables;
  for (std::uint64_t i = 0; i < count; ++i) {
    VariableSpec variable;
    variable.name = std::string(reader.text("name", kLongestName));
    if (variable.name.find('\0') != std::string::npos)
      throw DataError("a variable's name has a zero byte in it");
    variable.rows = reader.number<std::uint64_t>("rows", 0, kLargestVariable);
    variable.row_elements = reader.number<std::uint64_t>("row", 0, kLargestVariable);
    if (variable.rows != 0 && variable.row_elements > kLargestVariable / variable.rows)
      throw DataError(str("variable ", printable(variable.name), " is too large"));
    variable.sparse = reader.number<std::uint32_t>("sparse", 0, 1) != 0;
    variables.push_back(std::move(variable));
  }
  return variables;
}

void write_entry(control::MessageWriter& writer, const Entry& entry) {
  const OptimizerSpec& spec = entry.spec;
  writer.number(entry.variable).number(entry.rows).number(entry.step).number(entry.weight);
  writer.number(static_cast<std::uint32_t>(spec.kind)).number(spec.nesterov);
  for (const double figure :
       {spec.learning_rate, spec.weight_decay, spec.momentum, spec.dampening, spec.beta1, spec.beta2,
        spec.epsilon, spec.learning_rate_decay, spec.initial_accumulator})
    writer.number(figure);
}

Entry read_entry(control::MessageReader& reader, std::size_t variables) {
  Entry entry;
  if (variables == 0) throw DataError("a push to a server that has no variables");
  entry.variable = reader.number<std::uint32_t>("variable", 0, static_cast<std::uint32_t>(variables - 1));
  entry.rows = reader.number<std::uint64_t>("rows", 0, kLargestVariable);
  entry.step = reader.number<std::uint64_t>("step");
  entry.weight = reader.number<double>("weight", 0.0, 1e15);
  OptimizerSpec& spec = entry.spec;
  spec.kind = static_cast<OptimizerKind>(
      reader.number<std::uint32_t>("optimizer", 0, static_cast<std::uint32_t>(OptimizerKind::adagrad)));
  spec.nesterov = reader.number<std::uint32_t>("nesterov", 0, 1);
  for (double* const figure :
       {&spec.learning_rate, &spec.weight_decay, &spec.momentum, &spec.dampening, &spec.beta1, &spec.beta2,
        &spec.epsilon, &spec.learning_rate_decay, &spec.initial_accumulator})
    *figure = reader.number<double>("figure of the optimizer");
  return entry;
}

void write_figures(control::MessageWriter& writer, const ServerFigures& figures) {
  writer.number(figures.sync_step)
      .number(figures.recovered)
      .number(static_cast<std::uint32_t>(figures.open))
      .number(figures.queued);
  writer.number(static_cast<std::uint32_t>(figures.workers.size()));
  for (const WorkerFigures& worker : figures.workers) {
    writer.number(static_cast<std::uint32_t>(worker.phase))
        .number(worker.clock)
        .number(worker.begun)
        .number(worker.lost_steps)
        .number(worker.refused)
        .number(worker.late)
        .number(worker.returns);
  }
}

ServerFigures read_figures(control::MessageReader& reader) {
  ServerFigures figures;
  figures.sync_step = reader.number<std::uint64_t>("step");
  figures.recovered = reader.number<std::uint64_t>("recovered");
  figures.open = reader.number<std::uint32_t>("open", 0, 1) != 0;
  figures.queued = reader.number<std::uint64_t>("queued");
  const auto workers = reader.number<std::uint32_t>("workers", 0, kMostWorkers);
  for (std::uint32_t i = 0; i < workers; ++i) {
    WorkerFigures worker;
    worker.phase = static_cast<WorkerPhase>(
        reader.number<std::uint32_t>("phase", 0, static_cast<std::uint32_t>(WorkerPhase::resting)));
    for (std::uint64_t* const figure :
         {&worker.clock, &worker.begun, &worker.lost_steps, &worker.refused, &worker.late, &worker.returns})
      *figure = reader.number<std::uint64_t>("figure of a worker");
    figures.workers.push_back(worker);
  }
  return figures;
}

std::string difference(const std::vector<VariableSpec>& mine, const ServerOptions& my_options,
                       const std::vector<VariableSpec>& others, const ServerOptions& other_options) {
  const auto describe = [](const VariableSpec& v) {
    return str(v.name, " [", v.rows, " x ", v.row_elements, "]", v.sparse ? " with sparse gradients" : "");
  };
  for (std::size_t i = 0; i < std::max(mine.size(), others.size()); ++i) {
    const std::string one = i < mine.size() ? describe(mine[i]) : "nothing";
    const std::string other = i < others.size() ? describe(others[i]) : "nothing";
    if (one != other) return str("its variable number ", i, " is ", one, ", the other's is ", other);
  }
  const auto options = [](const ServerOptions& o) {
    return str(to_text(o.mode), ", workers ", o.workers, ", staleness ", o.staleness, ", backup workers ",
               o.backup_workers);
  };
  const std::string one = options(my_options), other = options(other_options);
  return one == other ? "" : str("it has ", one, ", the other has ", other);
}

}  // namespace rondo::server
