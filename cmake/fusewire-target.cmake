# fusewire_define_target(<name> <include folder> <languages> [IMPORTED]): the interface target, for this build and for
# an installed package. It asks for C++20 in these languages, of those that fusewire's sources can be.
function(fusewire_define_target name include_folder languages)
  add_library(${name} INTERFACE ${ARGN})
  target_include_directories(${name} INTERFACE "${include_folder}")
  target_link_libraries(${name} INTERFACE ${CMAKE_DL_LIBS})  # a heap asks whether a simulator is there
  foreach(language IN LISTS languages)
    string(TOLOWER ${language}_std_20 feature)
    if(feature IN_LIST CMAKE_${language}_COMPILE_FEATURES)
      target_compile_features(${name} INTERFACE ${feature})
    elseif(language MATCHES "^(CXX|HIP|CUDA)$")  # CMake before 3.25.3 does not know that nvcc 12 has C++20
      target_compile_options(${name} INTERFACE $<$<COMPILE_LANGUAGE:${language}>:-std=c++20>)
    endif()
  endforeach()
endfunction()

# fusewire_add_host_library(<name>): fusewire's host functions, compiled once, as a static library. What links it
# compiles its own sources without them, which takes less than half the time. HIP or CUDA must be enabled. Everything of
# a program that includes fusewire's headers links it, or nothing.
function(fusewire_add_host_library name)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if("HIP" IN_LIST languages)
    set(language HIP)
  elseif("CUDA" IN_LIST languages)
    set(language CUDA)
  else()
    message(FATAL_ERROR "fusewire_add_host_library(${name}): expected HIP or CUDA among the enabled languages")
  endif()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include <fusewire/host.ipp>\n")
  add_library(${name} STATIC "${source}")
  set_source_files_properties("${source}" PROPERTIES LANGUAGE ${language})
  target_link_libraries(${name} PUBLIC fusewire::fusewire)
  target_compile_definitions(${name} PUBLIC FUSEWIRE_HOST_LIBRARY)
endfunction()

# fusewire_add_ucx_library(<name> <source>): the engine over UCX (nodes/ucx_engine.hpp) as a static library. Without a
# UCX of 1.13 or newer that pkg-config finds, it adds nothing. HIP or CUDA must be enabled. <source>: ucx_engine.cpp.
function(fusewire_add_ucx_library name source)
  find_package(PkgConfig QUIET)
  if(NOT PkgConfig_FOUND)
    return()
  endif()
  pkg_check_modules(fusewire_ucx_found QUIET IMPORTED_TARGET GLOBAL ucx>=1.13)
  if(NOT fusewire_ucx_found_FOUND)
    return()
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if("HIP" IN_LIST languages)
    set(language HIP)
  elseif("CUDA" IN_LIST languages)
    set(language CUDA)
  else()
    message(FATAL_ERROR "fusewire_add_ucx_library(${name}): expected HIP or CUDA among the enabled languages")
  endif()
  add_library(${name} STATIC "${source}")
  set_source_files_properties("${source}" PROPERTIES LANGUAGE ${language})
  target_link_libraries(${name} PUBLIC fusewire::fusewire PRIVATE PkgConfig::fusewire_ucx_found)
  # It calls no host function that host.ipp has
  target_compile_definitions(${name} PRIVATE FUSEWIRE_HOST_LIBRARY)
endfunction()
