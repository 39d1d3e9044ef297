#pragma once

#include <array>
#include <string>

namespace rondo::env {

// The things a source can say about a process.
enum class Field {
  rank,              // of the process in the job
  world_size,        // processes of the job
  local_rank,        // among those of its host
  local_world_size,  // processes of its host
  node_rank,         // the host's number
  num_nodes,         // hosts of the job
  role,              // what the process is there for
  role_rank,         // among those of its role
  role_world_size,   // processes of its role
  master_addr,       // where ranks meet: the host
  master_port,       // and its port
  run_id,            // the job's name
  restart_count,     // starts of the job before this one
  num_ps,            // parameter servers
};

// Every Field, in the order of its declaration.
inline constexpr std::array kAllFields = {Field::rank,
                                          Field::world_size,
                                          Field::local_rank,
                                          Field::local_world_size,
                                          Field::node_rank,
                                          Field::num_nodes,
                                          Field::role,
                                          Field::role_rank,
                                          Field::role_world_size,
                                          Field::master_addr,
                                          Field::master_port,
                                          Field::run_id,
                                          Field::restart_count,
                                          Field::num_ps};

// "rank", "world_size", ...
const char* to_string(Field field);

}  // namespace rondo::env
