#pragma once

#include <array>
#include <string>

namespace rondo::env {

// Properties of a process that a source can provide.
enum class Field {
  rank,              // rank of the process in the job
  world_size,        // processes of the job
  local_rank,        // rank among the processes of its host
  local_world_size,  // number of processes on its host
  node_rank,         // number of the host
  num_nodes,         // hosts of the job
  role,              // role of the process
  role_rank,         // rank among the processes of its role
  role_world_size,   // number of processes with its role
  master_addr,       // rendezvous host
  master_port,       // rendezvous port
  run_id,            // name of the job
  restart_count,     // number of earlier starts of the job
  num_ps,            // number of parameter servers
};

// All fields, in declaration order.
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

// Returns "rank", "world_size", ...
const char* to_string(Field field);

}  // namespace rondo::env
