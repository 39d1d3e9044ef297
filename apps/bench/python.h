#pragma once

#include <string>

namespace rondo::bench {

// The Python that runs PyTorch peers: $RONDO_PYTHON, else .venv of the source tree that this program was
// built from, else python3.
std::string python();

// Why PyTorch cannot take part here, with the way to get it; empty when it can.
std::string why_no_pytorch();

// A peer's script by name: in bench/peers of the source tree, or in share/rondo/bench/peers beside an
// installed program. Throws Error when it is in neither.
std::string peer_script(const std::string& name);

}  // namespace rondo::bench
