#include "rondo/server/remote_link.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::server {
namespace {

constexpr auto kAskAgain = std::chrono::microseconds(200);
constexpr auto kSlowestAskAgain = std::chrono::milliseconds(5);
constexpr std::size_t kLargestAnswer = kMessageElements * sizeof(float);

void take_values(control::MessageReader& reader, float* to, std::size_t count) {
  const std::span<const std::byte> bytes = reader.bytes("values", kLargestAnswer);
  if (bytes.size() != count * sizeof(float))
    throw DataError(
        str("a server's answer has ", bytes.size(), " bytes in place of ", count * sizeof(float)));
  std::memcpy(to, bytes.data(), bytes.size());
}

}  // namespace

std::string RequestClient::ask(Operation operation,
                               const std::function<void(control::MessageWriter&)>& fields,
                               const Deadline& deadline) {
  Duration pause = kAskAgain;
  while (true) {
    control::MessageWriter writer;
    write_head(writer, {.operation = operation, .worker = worker_, .number = ++number_});
    fields(writer);
    const std::string answer = connection_->ask(writer.take(), deadline);
    control::MessageReader reader(answer, whom());
    const auto outcome = static_cast<Outcome>(
        reader.number<std::uint32_t>("outcome", 0, static_cast<std::uint32_t>(Outcome::refused)));
    if (outcome == Outcome::done) return answer.substr(sizeof(std::uint32_t));
    if (outcome == Outcome::refused)
      throw MismatchError(std::string(reader.text("reason", KiB(64).count)), {});
    if (deadline.passed()) throw TimeoutError(str(whom(), " keeps ", who_, " waiting"), {});
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(2 * pause, kSlowestAskAgain);
  }
}

ServerFigures RequestClient::figures(const Deadline& deadline) {
  const std::string answer = ask(
      Operation::figures, [](control::MessageWriter&) {}, deadline);
  control::MessageReader reader(answer, whom());
  return read_figures(reader);
}

RemoteLink::RemoteLink(std::shared_ptr<RequestClient> asker, std::vector<VariableSpec> variables,
                       Duration timeout)
    : asker_(std::move(asker)), variables_(std::move(variables)), timeout_(timeout) {}

void RemoteLink::pull(std::size_t v, std::span<float> to, const Deadline& deadline) {
  for (std::size_t first = 0; first < to.size(); first += kMessageElements) {
    const std::size_t count = std::min(kMessageElements, to.size() - first);
    const std::string answer = asker_->ask(
        Operation::pull,
        [&](control::MessageWriter& writer) {
          writer.number(static_cast<std::uint32_t>(v))
              .number(std::uint64_t{first})
              .number(std::uint64_t{count});
        },
        deadline);
    control::MessageReader reader(answer, asker_->whom());
    take_values(reader, to.data() + first, count);
  }
}

void RemoteLink::pull_rows(std::size_t v, std::span<const std::uint64_t> rows, float* to,
                           const Deadline& deadline) {
  const auto row = static_cast<std::size_t>(variables_[v].row_elements);
  const std::size_t most = std::max<std::size_t>(1, kMessageElements / 2 / std::max<std::size_t>(1, row));
  for (std::size_t first = 0; first < rows.size(); first += most) {
    const auto some = rows.subspan(first, std::min(most, rows.size() - first));
    const std::string answer = asker_->ask(
        Operation::pull_rows,
        [&](control::MessageWriter& writer) {
          writer.number(static_cast<std::uint32_t>(v))
              .number(std::uint64_t{some.size()})
              .bytes(std::as_bytes(some));
        },
        deadline);
    control::MessageReader reader(answer, asker_->whom());
    take_values(reader, to + first * row, some.size() * row);
  }
}

std::optional<std::vector<std::uint64_t>> RemoteLink::changed_rows(std::size_t v, std::uint64_t& cursor,
                                                                   const Deadline& deadline) {
  const std::string answer = asker_->ask(
      Operation::changed_rows,
      [&](control::MessageWriter& writer) { writer.number(static_cast<std::uint32_t>(v)).number(cursor); },
      deadline);
  control::MessageReader reader(answer, asker_->whom());
  cursor = reader.number<std::uint64_t>("cursor");
  if (reader.number<std::uint32_t>("known", 0, 1) == 0) return std::nullopt;
  const std::span<const std::byte> bytes = reader.bytes("rows", kLargestAnswer);
  std::vector<std::uint64_t> rows(bytes.size() / sizeof(std::uint64_t));
  std::memcpy(rows.data(), bytes.data(), rows.size() * sizeof(std::uint64_t));
  return rows;
}

void RemoteLink::ask_to_push(Operation operation, std::size_t v, const Entry& how, std::size_t bytes,
                             const std::function<void(control::MessageWriter&)>& gradient,
                             const Deadline& deadline) {
  if (bytes > kLargestAnswer) {
    throw UsageError(
        str("the gradient of variable ", variables_[v].name, " of ", to_string(Bytes{bytes}),
            " does not fit into a message to ", asker_->whom(),
            " on another host; divide it with ps-partitioner max-size:", to_string(Bytes{kLargestAnswer})));
  }
  Entry entry = how;
  entry.variable = static_cast<std::uint32_t>(v);
  asker_->ask(
      operation,
      [&](control::MessageWriter& writer) {
        write_entry(writer, entry);
        gradient(writer);
      },
      deadline);
}

void RemoteLink::push(std::size_t v, std::span<const float> gradient, const Entry& how,
                      const Deadline& deadline) {
  ask_to_push(
      Operation::push, v, how, gradient.size_bytes(),
      [&](control::MessageWriter& writer) { writer.bytes(std::as_bytes(gradient)); }, deadline);
}

void RemoteLink::push_encoded(std::size_t v, const EncodedGradient& gradient, const Entry& how,
                              const Deadline& deadline) {
  ask_to_push(
      Operation::push_encoded, v, how, gradient.bytes.size(),
      [&](control::MessageWriter& writer) { writer.text(gradient.codec).bytes(gradient.bytes); }, deadline);
}

void RemoteLink::push_rows(std::size_t v, std::span<const std::uint64_t> rows, const float* gradients,
                           const Entry& how, const Deadline& deadline) {
  Entry entry = how;
  entry.rows = rows.size();
  const std::span values(gradients, rows.size() * static_cast<std::size_t>(variables_[v].row_elements));
  ask_to_push(
      Operation::push_rows, v, entry, values.size_bytes(),
      [&](control::MessageWriter& writer) { writer.bytes(std::as_bytes(rows)).bytes(std::as_bytes(values)); },
      deadline);
}

void RemoteLink::begin_step(std::uint64_t step, const Deadline& deadline) {
  asker_->ask(
      Operation::begin_step, [&](control::MessageWriter& writer) { writer.number(step); }, deadline);
}

void RemoteLink::end_step(std::uint64_t step, double weight, const Deadline& deadline) {
  asker_->ask(
      Operation::end_step, [&](control::MessageWriter& writer) { writer.number(step).number(weight); },
      deadline);
}

void RemoteLink::flush(const Deadline& deadline) {
  asker_->ask(
      Operation::flush, [](control::MessageWriter&) {}, deadline);
}

ServerFigures RemoteLink::figures() { return asker_->figures(Deadline::after(timeout_)); }

void RemoteLink::rest() {
  asker_->ask(
      Operation::rest, [](control::MessageWriter&) {}, Deadline::after(timeout_));
}

bool RemoteLink::is_open() { return figures().open; }

void RemoteLink::hold(const Deadline& deadline) {
  flush(deadline);
  asker_->ask(
      Operation::hold, [](control::MessageWriter&) {}, deadline);
}

void RemoteLink::release() {
  asker_->ask(
      Operation::release, [](control::MessageWriter&) {}, Deadline::after(timeout_));
}

std::uint64_t RemoteLink::read_state(std::size_t v, int slot, std::span<float> to) {
  std::uint64_t updates = 0;
  for (std::size_t first = 0; first < to.size(); first += kMessageElements) {
    const std::size_t count = std::min(kMessageElements, to.size() - first);
    const std::string answer = asker_->ask(
        Operation::read_state,
        [&](control::MessageWriter& writer) {
          writer.number(static_cast<std::uint32_t>(v))
              .number(static_cast<std::int32_t>(slot))
              .number(std::uint64_t{first})
              .number(std::uint64_t{count});
        },
        Deadline::after(timeout_));
    control::MessageReader reader(answer, asker_->whom());
    updates = reader.number<std::uint64_t>("updates");
    take_values(reader, to.data() + first, count);
  }
  return updates;
}

void RemoteLink::write_state(std::size_t v, int slot, std::span<const float> from, std::uint64_t updates,
                             const OptimizerSpec& spec) {
  for (std::size_t first = 0; first < from.size(); first += kMessageElements) {
    const auto part = from.subspan(first, std::min(kMessageElements, from.size() - first));
    Entry entry;
    entry.variable = static_cast<std::uint32_t>(v);
    entry.rows = updates;
    entry.spec = spec;
    asker_->ask(
        Operation::write_state,
        [&](control::MessageWriter& writer) {
          write_entry(writer, entry);
          writer.number(static_cast<std::int32_t>(slot))
              .number(std::uint64_t{first})
              .bytes(std::as_bytes(part));
        },
        Deadline::after(timeout_));
  }
}

namespace {

constexpr std::size_t kLargestField = kMessageElements * sizeof(float);

Deadline at_once() { return Deadline::after(Duration::zero()); }

std::size_t read_variable(control::MessageReader& reader, const ServerMemory& memory) {
  if (memory.variables() == 0) throw DataError("a request for a variable of a server that has none");
  return reader.number<std::uint32_t>("variable", 0, static_cast<std::uint32_t>(memory.variables() - 1));
}

template <class T>
std::vector<T> read_numbers(control::MessageReader& reader, std::string_view field, std::size_t count) {
  const std::span<const std::byte> bytes = reader.bytes(field, kLargestField);
  if (bytes.size() != count * sizeof(T)) {
    throw DataError(str("a worker's message has ", bytes.size(), " bytes of ", field, " in place of ",
                        count * sizeof(T)));
  }
  std::vector<T> numbers(count);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

std::size_t bounded(std::size_t elements) {
  if (elements <= kMessageElements) return elements;
  throw DataError(str("a message for ", elements, " elements; at most ", kMessageElements, " are allowed"));
}

}  // namespace

void serve_remote(LocalLink& link, control::MessageReader& reader, const RequestHead& head,
                  control::MessageWriter& reply) {
  const ServerMemory& memory = link.memory();
  const auto done = [&] { reply.number(static_cast<std::uint32_t>(Outcome::done)); };
  if (!link.begin_request(head.number)) return done();
  switch (head.operation) {
    case Operation::pull: {
      const std::size_t v = read_variable(reader, memory);
      const auto first = reader.number<std::uint64_t>("first", 0, memory.elements(v));
      const auto count = bounded(reader.number<std::uint64_t>("count", 0, memory.elements(v) - first));
      reader.end();
      if (!link.takes_push(v)) throw TimeoutError("a push is being applied", {});
      std::vector<float> values(count);
      memory.read(v, first, count, values.data(), Deadline::after(kBlockTime));
      done();
      reply.bytes(std::as_bytes(std::span(values)));
      return;
    }
    case Operation::pull_rows: {
      const std::size_t v = read_variable(reader, memory);
      const auto count = reader.number<std::uint64_t>("rows", 0, memory.variable(v).rows);
      const auto rows = read_numbers<std::uint64_t>(reader, "numbers of rows", count);
      reader.end();
      std::vector<float> values(bounded(count * memory.variable(v).row_elements));
      link.pull_rows(v, rows, values.data(), at_once());
      done();
      reply.bytes(std::as_bytes(std::span(values)));
      return;
    }
    case Operation::changed_rows: {
      const std::size_t v = read_variable(reader, memory);
      auto cursor = reader.number<std::uint64_t>("cursor");
      reader.end();
      const auto rows = link.changed_rows(v, cursor, at_once());
      done();
      reply.number(cursor).number(static_cast<std::uint32_t>(rows.has_value()));
      if (rows) reply.bytes(std::as_bytes(std::span(*rows)));
      return;
    }
    case Operation::push: {
      const Entry entry = read_entry(reader, memory.variables());
      const auto gradient = read_numbers<float>(reader, "gradient", bounded(memory.elements(entry.variable)));
      reader.end();
      link.push(entry.variable, gradient, entry, at_once());
      return done();
    }
    case Operation::push_encoded: {
      const Entry entry = read_entry(reader, memory.variables());
      const std::string codec(reader.text("codec", 64));
      const std::span<const std::byte> bytes = reader.bytes("gradient", kLargestField);
      reader.end();
      // Codecs require aligned input.
      std::vector<float> aligned((bytes.size() + sizeof(float) - 1) / sizeof(float));
      std::memcpy(aligned.data(), bytes.data(), bytes.size());
      const auto gradient = std::as_bytes(std::span(aligned)).first(bytes.size());
      link.push_encoded(entry.variable, {codec, gradient}, entry, at_once());
      return done();
    }
    case Operation::push_rows: {
      const Entry entry = read_entry(reader, memory.variables());
      const VariableState& variable = memory.variable(entry.variable);
      if (entry.rows > variable.rows)
        throw DataError(str("a push of ", entry.rows, " rows of ", variable.rows));
      const auto rows = read_numbers<std::uint64_t>(reader, "numbers of rows", entry.rows);
      const auto gradients =
          read_numbers<float>(reader, "gradients", bounded(entry.rows * variable.row_elements));
      reader.end();
      link.push_rows(entry.variable, rows, gradients.data(), entry, at_once());
      return done();
    }
    case Operation::begin_step: {
      const auto step = reader.number<std::uint64_t>("step");
      reader.end();
      if (!link.may_begin(step)) throw TimeoutError("others are behind", {});
      link.begin_step(step, at_once());
      return done();
    }
    case Operation::end_step: {
      const auto step = reader.number<std::uint64_t>("step");
      const auto weight = reader.number<double>("weight", 0.0, 1e15);
      reader.end();
      link.end_step(step, weight, at_once());
      return done();
    }
    case Operation::flush:
      reader.end();
      link.flush(at_once());
      return done();
    case Operation::rest:
      reader.end();
      link.rest();
      return done();
    case Operation::hold:
      reader.end();
      link.hold(Deadline::after(std::chrono::milliseconds(100)));
      return done();
    case Operation::release:
      reader.end();
      link.release();
      return done();
    case Operation::read_state: {
      const std::size_t v = read_variable(reader, memory);
      const auto slot = reader.number<std::int32_t>("slot", -1, kMostSlots - 1);
      const auto first = reader.number<std::uint64_t>("first", 0, memory.elements(v));
      const auto count = bounded(reader.number<std::uint64_t>("count", 0, memory.elements(v) - first));
      reader.end();
      const float* const from = (slot < 0 ? memory.values(v) : memory.slot(v, slot)) + first;
      done();
      reply.number(memory.variable(v).step.load()).bytes(std::as_bytes(std::span(from, count)));
      return;
    }
    case Operation::write_state: {
      const Entry entry = read_entry(reader, memory.variables());
      const auto slot = reader.number<std::int32_t>("slot", -1, kMostSlots - 1);
      const auto first = reader.number<std::uint64_t>("first", 0, memory.elements(entry.variable));
      const std::span<const std::byte> bytes = reader.bytes("values", kLargestField);
      reader.end();
      if (bytes.size() % sizeof(float) != 0 ||
          bytes.size() / sizeof(float) > memory.elements(entry.variable) - first)
        throw DataError(
            str("a message with ", bytes.size(), " bytes behind element ", first, " of a variable"));
      // `rows` of the entry holds the number of updates.
      link.write_part(entry.variable, slot, first, bytes, entry.rows, entry.spec);
      return done();
    }
    default:
      throw DataError(
          str("operation ", static_cast<std::uint32_t>(head.operation), " is not one of a worker's"));
  }
}

}  // namespace rondo::server
