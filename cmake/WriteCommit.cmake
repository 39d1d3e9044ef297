# cmake -DCOMMIT=... -DSOURCE=... -DOUTPUT=... -P WriteCommit.cmake: writes the header with RONDO_COMMIT, the given one, else that of
# the Git repository SOURCE, else "unknown".
if(NOT COMMIT)
  execute_process(COMMAND git -C "${SOURCE}" rev-parse HEAD OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT COMMIT MATCHES "^[0-9a-f]+$")
  set(COMMIT unknown)
endif()
file(WRITE "${OUTPUT}" "#pragma once\n#define RONDO_COMMIT \"${COMMIT}\"\n")
