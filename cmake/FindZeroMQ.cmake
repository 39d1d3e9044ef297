# Finds ZeroMQ's C library (its Debian package carries no CMake files) and defines the target ZeroMQ::ZeroMQ.
find_path(ZEROMQ_INCLUDE_DIR zmq.h)
find_library(ZEROMQ_LIBRARY zmq)
mark_as_advanced(ZEROMQ_INCLUDE_DIR ZEROMQ_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  ZeroMQ
  REQUIRED_VARS ZEROMQ_LIBRARY ZEROMQ_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "On Debian or Ubuntu: apt-get install libzmq3-dev")

if(ZeroMQ_FOUND AND NOT TARGET ZeroMQ::ZeroMQ)
  add_library(ZeroMQ::ZeroMQ UNKNOWN IMPORTED)
  set_target_properties(ZeroMQ::ZeroMQ PROPERTIES IMPORTED_LOCATION "${ZEROMQ_LIBRARY}"
                                                  INTERFACE_INCLUDE_DIRECTORIES "${ZEROMQ_INCLUDE_DIR}")
endif()
