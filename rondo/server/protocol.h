#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/control/message.h"
#include "rondo/server/link.h"

// Operations of the protocol between workers and servers. Every request begins with the protocol number,
// rondo's version, the operation, the worker and the request number. Every answer begins with the outcome.
namespace rondo::server {

enum class Operation : std::uint32_t {
  hello,    // connect: exchange identity and variables
  create,   // chief: lay out these variables
  open,     // chief: the values are written
  goodbye,  // the worker has finished
  figures,
  // Operations of a worker on another host; each is the Link method of the same name.
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
  not_yet,  // repeat the request
  refused,  // permanent; a text gives the reason
};

// Maximum number of elements of a variable in one message.
inline constexpr std::size_t kMessageElements = std::size_t{4} << 20;

// Returns a text that is equal for processes that can map each other's memory: same host, container and user.
std::string host_identity();

struct RequestHead {
  Operation operation = Operation::hello;
  std::uint32_t worker = 0;
  std::uint64_t number = 0;  // number of the request, per worker
};
void write_head(control::MessageWriter& writer, const RequestHead& head);
// Throws DataError for bytes that are not a request, and MismatchError naming both versions of rondo.
RequestHead read_head(control::MessageReader& reader, const std::string& own, const std::string& other);

void write_options(control::MessageWriter& writer, const ServerOptions& options);
ServerOptions read_options(control::MessageReader& reader);
void write_variables(control::MessageWriter& writer, const std::vector<VariableSpec>& variables);
std::vector<VariableSpec> read_variables(control::MessageReader& reader);
void write_entry(control::MessageWriter& writer, const Entry& entry);
// `variables` is the server's number of variables.
Entry read_entry(control::MessageReader& reader, std::size_t variables);
void write_figures(control::MessageWriter& writer, const ServerFigures& figures);
ServerFigures read_figures(control::MessageReader& reader);

// Returns an empty text if both agree, else a description of the first variable or option that differs, with
// both values.
std::string difference(const std::vector<VariableSpec>& mine, const ServerOptions& my_options,
                       const std::vector<VariableSpec>& others, const ServerOptions& other_options);

}  // namespace rondo::server
