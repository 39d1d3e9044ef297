#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/base/error.h"

namespace rondo {

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest&) {
  throw UsageError(
      "this build of rondo has no Gloo: its headers were not found. On Debian or Ubuntu: apt-get install "
      "libgloo-dev, "
      "then build again");
}

bool have_gloo() { return false; }

RegisteredBackend GlooEngineFactory::engine(const Options& /*none*/) { return {make_gloo_backend, {}, true}; }

}  // namespace rondo
