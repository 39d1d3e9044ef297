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

// Everything that a device does passes through these functions, and they count it (counts.h). A detector of
// races belongs behind them: it would keep a clock for each stream and the host, advance it in on_launch()
// and on_copy(), and join clocks in on_synchronise() and where guard.cpp records an event or has a stream
// wait for one. Any thread.
void on_launch(const Launch& launch);
// `blocks`: the host waits for the end of the copy.
void on_copy(Copy kind, const Launch& launch, bool blocks);
// The host waits for a stream, an event or a device, or for the value that an operator returns.
void on_synchronise();

}  // namespace rondo::sim
