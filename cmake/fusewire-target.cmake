# CMake before 3.25.3 does not know that nvcc 12 has C++20.
if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12
   AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()

# fusewire_define_target(<name> <include folder> [IMPORTED]): the interface target, for this build and for an installed package.
# Languages that are enabled by then are asked for C++20.
function(fusewire_define_target name include_folder)
  add_library(${name} INTERFACE ${ARGN})
  target_include_directories(${name} INTERFACE "${include_folder}")
  foreach(language CXX HIP CUDA)
    string(TOLOWER ${language}_std_20 feature)
    if(feature IN_LIST CMAKE_${language}_COMPILE_FEATURES)
      target_compile_features(${name} INTERFACE ${feature})
    endif()
  endforeach()
endfunction()
