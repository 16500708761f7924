# fusewire_define_target(<name> <include folder> [IMPORTED]): the interface target, for this build and for an installed package.
# Languages that are enabled by then are asked for C++20.
function(fusewire_define_target name include_folder)
  add_library(${name} INTERFACE ${ARGN})
  target_include_directories(${name} INTERFACE "${include_folder}")
  target_link_libraries(${name} INTERFACE ${CMAKE_DL_LIBS})  # a heap asks whether a simulator is there
  foreach(language CXX HIP CUDA)
    string(TOLOWER ${language}_std_20 feature)
    if(feature IN_LIST CMAKE_${language}_COMPILE_FEATURES)
      target_compile_features(${name} INTERFACE ${feature})
    elseif(CMAKE_${language}_COMPILER)  # CMake before 3.25.3 does not know that nvcc 12 has C++20
      target_compile_options(${name} INTERFACE $<$<COMPILE_LANGUAGE:${language}>:-std=c++20>)
    endif()
  endforeach()
endfunction()
