# Search path of programs for shared libraries. A build, an installation and a package have the same folders below their own, so
# the same programs work in each of them without a change:
#
#   lib/rondo                  libraries that come with rondo, as the planner's solver
#   lib/rondo/libtorch         a symbolic link to the libtorch that rondo was built with; packages have none
#   ../torch                   libtorch where rondo is a Python package beside torch
include(GNUInstallDirs)
set(RONDO_PRIVATE_LIBRARIES "${CMAKE_INSTALL_LIBDIR}/rondo")
file(RELATIVE_PATH _from_programs "/${CMAKE_INSTALL_BINDIR}" "/${RONDO_PRIVATE_LIBRARIES}")
set(CMAKE_INSTALL_RPATH "$ORIGIN/${_from_programs}" "$ORIGIN/${_from_programs}/libtorch/lib" "$ORIGIN/../../torch/lib")
unset(_from_programs)
# Libraries outside the system's folders and the project, as an MPI of one's own.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
if(RONDO_IS_TOP_LEVEL)
  set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
  set(Libtorch_LINK "${CMAKE_BINARY_DIR}/${RONDO_PRIVATE_LIBRARIES}/libtorch")
endif()
