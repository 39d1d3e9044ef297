#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/launch/std_streams.h"

namespace rondo::launch {

enum class Binding { none, core, numa };

// What `rondo run` is told: one program, as n processes of this host, which may be one of several.
struct RunOptions {
  std::vector<std::string> command;  // program and its arguments, complete (see make_command)
  int processes = 1;                 // of this host
  // Of every host, when there are several; empty: this one is alone. processes is
  // processes_of_hosts[node_rank].
  std::vector<int> processes_of_hosts;
  int node_rank = 0;                     // number of this host
  std::string interface;                 // network interface for every engine; empty: each chooses
  std::optional<Duration> join_timeout;  // how long ranks wait for each other to appear; empty: their default
  std::string run_id;                    // empty: one is made up
  std::string role = "default";
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;  // empty: a free one for every attempt, which one host alone may have
  int max_restarts = 0;

  std::string log_dir;      // empty: no log files, except where `redirects` or `tee` ask for one
  StreamsByRank redirects;  // to a file instead of the console
  StreamsByRank tee;        // to a file and the console
  std::optional<std::set<int>> shown_ranks;  // whose output the console shows; empty: all

  Binding binding = Binding::none;
  std::optional<int> omp_threads;  // empty: 1 if processes > 1 and OMP_NUM_THREADS is not set
  std::map<int, std::vector<std::string>> wrappers;  // by rank: words that are put before the command
  std::set<int> forwarded_signals;                   // empty: TERM, INT, HUP, QUIT
  // Between TERM and KILL: after a failure, and after a signal to the launcher, when workers may be saving
  // their state.
  Duration grace = std::chrono::seconds(5);
  Duration signal_grace = std::chrono::seconds(30);
};

}  // namespace rondo::launch
