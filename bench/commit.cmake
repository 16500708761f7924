# Writes OUT, a header that says which commit SOURCE is at, if that has changed.
cmake_minimum_required(VERSION 3.25)
find_package(Git QUIET)
set(commit unknown)
if(GIT_FOUND)
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${SOURCE}" describe --always --dirty --exclude * OUTPUT_VARIABLE
      commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define FUSEWIRE_COMMIT \"${commit}\"\n")
