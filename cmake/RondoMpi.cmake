# Whether the engine on MPI and its benchmark can be built: RONDO_HAVE_MPI, and RONDO_MPICC, MPI's compiler.
#
# Asked of the compiler itself, and before FindMPI: Debian's openmpi-bin brings mpicc.openmpi without mpi.h, and with that
# FindMPI makes a target that names a folder which is not there, which ends the configuring.
find_program(RONDO_MPICC NAMES ${MPI_C_COMPILER} mpicc mpicc.openmpi mpicc.mpich HINTS ENV MPI_HOME PATH_SUFFIXES bin)
mark_as_advanced(RONDO_MPICC)
set(RONDO_HAVE_MPI OFF)
if(NOT RONDO_MPI)
  return()
endif()
if(NOT RONDO_MPICC)
  message(STATUS "No MPI engine: mpicc was not found. 'make setup-peers' installs it.")
  return()
endif()
set(_probe "${CMAKE_BINARY_DIR}/generated/mpi_probe.c")
file(WRITE "${_probe}" "#include <mpi.h>\n")
execute_process(COMMAND "${RONDO_MPICC}" -E "${_probe}" RESULT_VARIABLE _failed OUTPUT_QUIET ERROR_QUIET)
if(_failed)
  message(STATUS "No MPI engine: ${RONDO_MPICC} is here, but not the header mpi.h. On Debian or Ubuntu: "
                 "apt-get install libopenmpi-dev  (or run 'make setup-peers')")
  return()
endif()
set(MPI_C_COMPILER "${RONDO_MPICC}" CACHE FILEPATH "MPI's compiler for C")
find_package(MPI QUIET COMPONENTS C)
set(RONDO_HAVE_MPI ${MPI_C_FOUND})
if(NOT RONDO_HAVE_MPI)
  message(STATUS "No MPI engine: CMake's FindMPI could not use ${RONDO_MPICC}.")
endif()
