# Where installed programs look for shared libraries, in this order. Spelled out, because
# CMAKE_INSTALL_RPATH_USE_LINK_PATH leaves out every folder inside the project, and so .venv.
include(GNUInstallDirs)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
# Of `cmake --install`'s own, as the planner's solver; found also when the prefix was moved.
set(RONDO_PRIVATE_LIBRARIES "${CMAKE_INSTALL_LIBDIR}/rondo")
file(RELATIVE_PATH _from_programs "/${CMAKE_INSTALL_BINDIR}" "/${RONDO_PRIVATE_LIBRARIES}")
set(CMAKE_INSTALL_RPATH "$ORIGIN/${_from_programs}")
unset(_from_programs)
# What links libtorch has its folder as well; see rondo_use_torch.
set(RONDO_TORCH_RUN_PATH "${Libtorch_DIR_FOUND}/lib")
