#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <string>
#include <vector>

namespace rondo::sim {

// One use of a tensor's memory by an operator or a copy.
struct Use {
  at::Tensor tensor;  // on a device
  bool writes = false;
};

// One operator or copy, on a stream.
struct Launch {
  std::string operation;
  c10::Stream stream;
  std::vector<Use> uses;
};

enum class Copy { host_to_device, device_to_host, device_to_device };

// Every action of a device calls these functions, and they count it (counts.h). A race detector belongs
// behind them. It would keep a clock for each stream and the host, advance it in on_launch() and on_copy(),
// and join clocks in on_synchronise() and where guard.cpp records an event or makes a stream wait for one.
// Safe from any thread.
void on_launch(const Launch& launch);
// Counts a copy. `blocks`: the host waits for its end.
void on_copy(Copy kind, const Launch& launch, bool blocks);
// Counts a wait of the host for a stream, an event, a device, or an operator's returned value.
void on_synchronise();

}  // namespace rondo::sim
