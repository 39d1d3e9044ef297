# The Open MPI backend, rondo_mpi.so: a module, so that a process loads MPI only on demand.
function(rondo_mpi_engine)
  if(NOT RONDO_HAVE_MPI)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${engine_folder}/module/*.cpp" "${engine_folder}/../requests/*.cpp")
  add_library(rondo_mpi MODULE ${sources})
  set_target_properties(rondo_mpi PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
  target_include_directories(rondo_mpi PRIVATE "${PROJECT_SOURCE_DIR}")
  # Without C++ bindings, which Open MPI's header would otherwise pull in.
  target_compile_definitions(rondo_mpi PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_include_directories(rondo_mpi SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
  target_link_libraries(rondo_mpi PRIVATE rondo_settings rondo_base rondo_collective ${MPI_C_LIBRARIES})
  rondo_use_torch(rondo_mpi)
  install(TARGETS rondo_mpi LIBRARY DESTINATION lib)
endfunction()

rondo_mpi_engine()
