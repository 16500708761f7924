# Which GPU compiler builds the programs of this project, and what starts them.
#   FUSEWIRE_GPU        amd | nvidia
#   FUSEWIRE_LAUNCHER   command before every test and example (fusewire-sim where there is no AMD GPU)
#   FUSEWIRE_SANITIZE   sanitizers of the host code: address,undefined | thread
#   FUSEWIRE_SHARE_KERNELS   ON: programs share the operators' kernels, which compiles faster; for gfx942 only
# Afterwards: fusewire_gpu_language, fusewire_gpu_executable(), fusewire_run_test().

enable_language(CXX)
set(CMAKE_CXX_EXTENSIONS OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug | Release | RelWithDebInfo" FORCE)
endif()

# Libraries that scripts/setup could not install in the system stand in the private prefix.
list(APPEND CMAKE_PREFIX_PATH "$ENV{FUSEWIRE_PREFIX}/catch2" "${PROJECT_SOURCE_DIR}/.prefix/catch2")

set(FUSEWIRE_ROCM_PREFIX "$ENV{ROCM_PATH}" CACHE PATH "ROCm, or the private prefix made by scripts/setup")
if(NOT FUSEWIRE_ROCM_PREFIX)
  set_property(CACHE FUSEWIRE_ROCM_PREFIX PROPERTY VALUE /opt/rocm)
endif()
find_program(FUSEWIRE_HIP_CLANG clang++ PATHS "${FUSEWIRE_ROCM_PREFIX}/llvm/bin" "${FUSEWIRE_ROCM_PREFIX}/lib/llvm/bin"
    NO_DEFAULT_PATH)
find_program(FUSEWIRE_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
mark_as_advanced(FUSEWIRE_HIP_CLANG FUSEWIRE_NVCC)

if(CMAKE_HIP_COMPILER OR FUSEWIRE_HIP_CLANG)
  set(_gpu amd)
elseif(CMAKE_CUDA_COMPILER OR FUSEWIRE_NVCC)
  set(_gpu nvidia)
endif()
set(FUSEWIRE_GPU "${_gpu}" CACHE STRING "amd | nvidia")
set_property(CACHE FUSEWIRE_GPU PROPERTY STRINGS amd nvidia)

find_program(FUSEWIRE_CCACHE ccache)
mark_as_advanced(FUSEWIRE_CCACHE)
if(FUSEWIRE_CCACHE)
  foreach(language CXX HIP CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER "${FUSEWIRE_CCACHE}")
    endif()
  endforeach()
endif()

if(FUSEWIRE_GPU STREQUAL "amd")
  if(NOT CMAKE_HIP_COMPILER)
    set(CMAKE_HIP_COMPILER "${FUSEWIRE_HIP_CLANG}")
    set(CMAKE_HIP_COMPILER_ROCM_ROOT "${FUSEWIRE_ROCM_PREFIX}")
  endif()
  if(NOT CMAKE_HIP_ARCHITECTURES)
    set(CMAKE_HIP_ARCHITECTURES gfx942 CACHE STRING "AMD GPU architectures")
  endif()
  set(fusewire_gpu_language HIP)
elseif(FUSEWIRE_GPU STREQUAL "nvidia")
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${FUSEWIRE_NVCC}")
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "NVIDIA GPU architectures")
  endif()
  set(fusewire_gpu_language CUDA)
else()
  message(FATAL_ERROR "No GPU compiler: looked for ROCm's clang++ in ${FUSEWIRE_ROCM_PREFIX}/llvm/bin and for nvcc. "
    "Set FUSEWIRE_ROCM_PREFIX or CMAKE_CUDA_COMPILER, or run scripts/setup and use the preset 'sim'.")
endif()
set(CMAKE_${fusewire_gpu_language}_EXTENSIONS OFF)
enable_language(${fusewire_gpu_language})

find_package(Threads REQUIRED)

# Kernels are not instrumented: -Xarch_host keeps the device's code as it is.
set(FUSEWIRE_SANITIZE "" CACHE STRING "Sanitizers of the host code: address,undefined | thread")
if(FUSEWIRE_SANITIZE)
  # A kernel's address in host code is that of a variable: what the sanitizer of function types reads before it is
  # nothing, and clang 22 drops the launch.
  set(fusewire_sanitize_host -fsanitize=${FUSEWIRE_SANITIZE} -fno-sanitize=function -fno-sanitize-recover=all
      -fno-omit-frame-pointer -gline-tables-only)
  list(TRANSFORM fusewire_sanitize_host PREPEND "-Xarch_host " OUTPUT_VARIABLE fusewire_sanitize_hip)
  list(TRANSFORM fusewire_sanitize_hip PREPEND "SHELL:")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${fusewire_sanitize_host}>"
      "$<$<COMPILE_LANGUAGE:HIP>:${fusewire_sanitize_hip}>")
  add_link_options(-fsanitize=${FUSEWIRE_SANITIZE})
endif()

if(FUSEWIRE_SIM AND NOT FUSEWIRE_GPU STREQUAL "amd")
  message(FATAL_ERROR "FUSEWIRE_SIM runs gfx942 programs: it needs FUSEWIRE_GPU=amd")
endif()
if(FUSEWIRE_SIM)
  set(_launcher "${PROJECT_BINARY_DIR}/sim/fusewire-sim")
endif()
set(FUSEWIRE_LAUNCHER "${_launcher}" CACHE STRING "Command before every test and example")

# Left out: clang 22's remark on __COUNTER__, which the macros of Catch2 and Google Benchmark use, and
# nvcc's 177, "declared but never referenced", knows nothing of what a template uses; the host compiler reports the real
# ones.
add_library(fusewire_warnings INTERFACE)
target_compile_options(fusewire_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX,HIP>:-Wall;-Wextra;-Wpedantic>"
  "$<$<COMPILE_LANGUAGE:CXX,HIP>:-Wno-unknown-pragmas;-Wno-unknown-warning-option;-Wno-c2y-extensions>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=177;-Xcompiler=-Wall,-Wextra,-Wno-unknown-pragmas>")
if(FUSEWIRE_STRICT)
  target_compile_options(fusewire_warnings INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX,HIP>:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()

# fusewire_gpu_sources(<file>...): these are compiled by the GPU compiler, in every folder.
function(fusewire_gpu_sources)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE ${fusewire_gpu_language})
endfunction()

option(FUSEWIRE_TESTS_AS_PTX "Compile tests for NVIDIA GPUs as far as PTX only, without host code; for .ci/run" OFF)
mark_as_advanced(FUSEWIRE_TESTS_AS_PTX)

# fusewire_gpu_executable(<name> <source>...)
function(fusewire_gpu_executable name)
  if(fusewire_as_ptx)
    add_library(${name} OBJECT ${ARGN})
    set_target_properties(${name} PROPERTIES CUDA_PTX_COMPILATION ON)
  else()
    add_executable(${name} ${ARGN})
  endif()
  fusewire_gpu_sources(${ARGN})
  target_link_libraries(${name} PRIVATE fusewire_host fusewire_warnings Threads::Threads)
  if(FUSEWIRE_GPU STREQUAL "amd")
    target_link_options(${name} PRIVATE "-Wl,-rpath,${FUSEWIRE_ROCM_PREFIX}/lib")  # CMake's HIP language adds none
  endif()
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin"
    CROSSCOMPILING_EMULATOR "${FUSEWIRE_LAUNCHER}")
  if(TARGET fusewire-sim)
    add_dependencies(${name} fusewire-sim)
  endif()
  set_property(GLOBAL APPEND PROPERTY fusewire_programs ${name})  # whose code tests/isa/check_order.py looks at
  if(FUSEWIRE_SHARE_KERNELS)
    fusewire_share_kernels(${name} ${ARGN})
  endif()
endfunction()

# fusewire_share_kernels(<target> <source>...): what its sources launch of tests/kernels is not compiled for them.
function(fusewire_share_kernels target)
  set(once "${PROJECT_SOURCE_DIR}/tests/kernels/once.hpp")
  file(STRINGS "${once}" operators REGEX "#include <fusewire/ops/")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source)
    file(STRINGS "${source}" includes REGEX "#include <fusewire/ops/")
    foreach(operator IN LISTS operators)
      if(operator IN_LIST includes)
        set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS -include "${once}")
        set_property(SOURCE "${source}" APPEND PROPERTY OBJECT_DEPENDS "${once}")
        target_link_libraries(${target} PRIVATE fusewire_kernels_once)
        break()
      endif()
    endforeach()
  endforeach()
endfunction()

# fusewire_run_test(<test> <seconds> <target> [<argument>...]): the program, started by the launcher, must end with 0.
function(fusewire_run_test test seconds target)
  if(NOT fusewire_as_ptx)
    add_test(NAME ${test} COMMAND ${FUSEWIRE_LAUNCHER} $<TARGET_FILE:${target}> ${ARGN})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${seconds} SKIP_RETURN_CODE 77)
  endif()
endfunction()
