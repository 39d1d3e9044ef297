#pragma once

#include <string>
#include <vector>

// Subcommands that are programs of their own, named rondo-<subcommand> and kept beside this program, as git
// does.

// Each one that is known.
struct Subcommand {
  const char* name;
  const char* help;             // one line
  bool links_libtorch = false;  // and cannot start without it
};
const std::vector<Subcommand>& known_subcommands();

// Replaces this process by the subcommand's program. Only returns by throwing: rondo::UsageError when the
// name is not known or its program is not there, and what use_libtorch() throws for a program that links
// libtorch.
[[noreturn]] void exec_subcommand(const std::string& name, const std::vector<std::string>& arguments);

// Path of the subcommand's program; throws rondo::UsageError as above.
std::string subcommand_program(const std::string& name);
