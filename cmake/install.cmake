# Component headers: what a project needs that compiles for GPUs it has. Component sim: the simulator
# (sim/CMakeLists.txt), and what compiles for it where there is no ROCm: a toolchain file, and a copy of the private
# prefix, which the toolchain file finds.
include(CMakePackageConfigHelpers)

set(_package share/cmake/fusewire)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/fusewire-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
configure_file(cmake/fusewire.pc.in "${PROJECT_BINARY_DIR}/fusewire.pc" @ONLY)

install(DIRECTORY include/fusewire DESTINATION include COMPONENT headers FILES_MATCHING
  PATTERN "*.hpp" PATTERN "*.ipp")
install(FILES cmake/fusewire-config.cmake cmake/fusewire-target.cmake
    "${PROJECT_BINARY_DIR}/fusewire-config-version.cmake"
  DESTINATION ${_package} COMPONENT headers)
install(FILES nodes/ucx/ucx_engine.cpp DESTINATION ${_package}/ucx COMPONENT headers)
install(FILES "${PROJECT_BINARY_DIR}/fusewire.pc" DESTINATION share/pkgconfig COMPONENT headers)
install(FILES LICENSE DESTINATION share/doc/fusewire COMPONENT headers)
install(DIRECTORY template DESTINATION share/doc/fusewire COMPONENT headers)

if(FUSEWIRE_SIM)
  install(FILES cmake/toolchain-sim.cmake DESTINATION ${_package} COMPONENT sim)
  if(EXISTS "${FUSEWIRE_ROCM_PREFIX}/hip-flags")  # scripts/setup made it
    install(DIRECTORY "${FUSEWIRE_ROCM_PREFIX}/" DESTINATION lib/fusewire/hip COMPONENT sim
      PATTERN ".ready*" EXCLUDE PATTERN "catch2" EXCLUDE PATTERN "vendor" EXCLUDE PATTERN "older-hip" EXCLUDE)
  endif()
endif()
