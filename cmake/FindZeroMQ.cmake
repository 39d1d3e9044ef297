# Finds ZeroMQ's C library, whose Debian package carries no CMake files: ZEROMQ_INCLUDE_DIR and ZEROMQ_LIBRARY. Nothing is linked
# with it: rondo loads it when a process sends its first message (rondo/control/zeromq.h).
find_path(ZEROMQ_INCLUDE_DIR zmq.h)
find_library(ZEROMQ_LIBRARY zmq)
mark_as_advanced(ZEROMQ_INCLUDE_DIR ZEROMQ_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  ZeroMQ
  REQUIRED_VARS ZEROMQ_LIBRARY ZEROMQ_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "On Debian or Ubuntu: apt-get install libzmq3-dev")
