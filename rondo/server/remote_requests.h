#pragma once

#include "rondo/server/local_link.h"
#include "rondo/server/protocol.h"

namespace rondo::server {

// Does for a worker of another host what it asks for, without ever waiting: what must wait is answered with
// Outcome::not_yet. Throws DataError for a message that is none.
void serve_remote(LocalLink& link, control::MessageReader& reader, const RequestHead& head,
                  control::MessageWriter& reply);

}  // namespace rondo::server
