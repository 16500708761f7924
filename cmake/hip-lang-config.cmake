# What CMake's HIP language asks of a ROCm tree: how a program reaches the runtime. scripts/setup puts it into the
# private prefix.
get_filename_component(_fusewire_rocm "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hip-lang::device)
  add_library(hip-lang::amdhip64 SHARED IMPORTED)
  set_target_properties(hip-lang::amdhip64 PROPERTIES
    IMPORTED_LOCATION "${_fusewire_rocm}/lib/libamdhip64.so.7"
    IMPORTED_SONAME libamdhip64.so.7)
  add_library(hip-lang::device INTERFACE IMPORTED)
  set_target_properties(hip-lang::device PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "$<$<COMPILE_LANGUAGE:HIP>:${_fusewire_rocm}/include>"
    INTERFACE_INCLUDE_DIRECTORIES "$<$<COMPILE_LANGUAGE:HIP>:${_fusewire_rocm}/include>"
    INTERFACE_LINK_LIBRARIES hip-lang::amdhip64
    INTERFACE_LINK_OPTIONS
    "$<$<LINK_LANGUAGE:HIP>:--hip-link;-Wl,-rpath,${_fusewire_rocm}/lib;--rtlib=compiler-rt;-unwindlib=libgcc>")
endif()
unset(_fusewire_rocm)
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET "hip-lang::device")
