# cmake -DCOMPILE="<command>" -DSOURCE=<file> -P check.cmake
file(STRINGS "${SOURCE}" lines LIMIT_COUNT 2)
list(POP_FRONT lines line)
if(NOT line MATCHES "^// expect: (.+)$")
  message(FATAL_ERROR "the first line of ${SOURCE} is not '// expect: REGEX'")
endif()
set(expected "${CMAKE_MATCH_1}")
if(lines MATCHES "^// with: ((-std=|-x ).+)$")  # in the place of the option of that name
  string(REGEX REPLACE " ${CMAKE_MATCH_2}[^ ]+" " ${CMAKE_MATCH_1}" COMPILE "${COMPILE}")
endif()

separate_arguments(command UNIX_COMMAND "${COMPILE}")
execute_process(COMMAND ${command} "${SOURCE}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, and must not: '${expected}' was expected")
endif()
if(NOT output MATCHES "${expected}")
  message(FATAL_ERROR
      "${SOURCE} is refused, but not for the reason expected.\nExpected: ${expected}\nThe compiler says:\n${output}")
endif()
