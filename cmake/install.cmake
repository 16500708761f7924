include(CMakePackageConfigHelpers)

set(_package share/cmake/fusewire)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/fusewire-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)

install(DIRECTORY include/fusewire DESTINATION include COMPONENT headers FILES_MATCHING PATTERN "*.hpp")
install(FILES cmake/fusewire-config.cmake cmake/fusewire-target.cmake "${PROJECT_BINARY_DIR}/fusewire-config-version.cmake"
  DESTINATION ${_package} COMPONENT headers)
install(FILES LICENSE DESTINATION share/doc/fusewire COMPONENT headers)
