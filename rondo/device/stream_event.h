#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace rondo {

// Returns the calling thread's current stream on `device`, an accelerator.
c10::Stream current_stream(c10::Device device);

// Returns an event behind all work that was queued so far on the calling thread's current stream of `device`,
// an accelerator: Event::query() says whether the device has done it.
c10::Event record_event(c10::Device device);

}  // namespace rondo
