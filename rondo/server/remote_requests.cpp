#include "rondo/server/remote_requests.h"

#include <cstring>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::server {
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
      // Codecs read what is aligned.
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
      // Steps stand in the entry's number of rows.
      link.write_part(entry.variable, slot, first, bytes, entry.rows, entry.spec);
      return done();
    }
    default:
      throw DataError(
          str("operation ", static_cast<std::uint32_t>(head.operation), " is none of a worker's"));
  }
}

}  // namespace rondo::server
