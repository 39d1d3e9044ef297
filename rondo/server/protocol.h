#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/control/message.h"
#include "rondo/server/link.h"

// What workers and servers say to each other. Every request begins with the protocol's number and version of
// rondo, the operation, the worker and the number of the request; every answer with whether it was done.
namespace rondo::server {

enum class Operation : std::uint32_t {
  hello,    // who am I, and what does the server have
  create,   // the chief: lay out these variables
  open,     // the chief: the values are there
  goodbye,  // this worker has finished
  figures,
  // A worker of another host; each is the method of Link.
  pull,
  pull_rows,
  changed_rows,
  push,
  push_encoded,
  push_rows,
  begin_step,
  end_step,
  flush,
  rest,
  hold,
  release,
  read_state,
  write_state,
  last_operation = write_state
};

enum class Outcome : std::uint32_t {
  done,
  not_yet,  // ask again
  refused,  // for ever: a text says why
};

// The largest part of a variable in one message.
inline constexpr std::size_t kMessageElements = std::size_t{4} << 20;

// Whose memory a process can map: the same text on the same host, in the same container, as the same user.
std::string host_identity();

struct RequestHead {
  Operation operation = Operation::hello;
  std::uint32_t worker = 0;
  std::uint64_t number = 0;  // of this worker's requests
};
void write_head(control::MessageWriter& writer, const RequestHead& head);
// Throws DataError for what is no request, MismatchError naming both versions of rondo.
RequestHead read_head(control::MessageReader& reader, const std::string& own, const std::string& other);

void write_options(control::MessageWriter& writer, const ServerOptions& options);
ServerOptions read_options(control::MessageReader& reader);
void write_variables(control::MessageWriter& writer, const std::vector<VariableSpec>& variables);
std::vector<VariableSpec> read_variables(control::MessageReader& reader);
void write_entry(control::MessageWriter& writer, const Entry& entry);
// `variables` is how many there are.
Entry read_entry(control::MessageReader& reader, std::size_t variables);
void write_figures(control::MessageWriter& writer, const ServerFigures& figures);
ServerFigures read_figures(control::MessageReader& reader);

// Empty when both agree, else how they differ: the first variable or option that does, with both values.
std::string difference(const std::vector<VariableSpec>& mine, const ServerOptions& my_options,
                       const std::vector<VariableSpec>& others, const ServerOptions& other_options);

}  // namespace rondo::server
