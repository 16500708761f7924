# cmake -DLAUNCHER=... -DPROGRAM=... -DNAME=... -DEXPECT=weak|strong -DSEEDS=N [-DOPTIONS=...] -P weak.cmake Expected
# weak: with one of the seeds 1 to N the simulator gives the weak answer. Expected strong: it gives the strong one with
# each of them.
separate_arguments(OPTIONS UNIX_COMMAND "${OPTIONS}")
foreach(seed RANGE 1 ${SEEDS})
  execute_process(COMMAND ${LAUNCHER} ${OPTIONS} --seed ${seed} ${PROGRAM} --only ${NAME} --expect ${EXPECT}
      RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(status EQUAL 0 AND EXPECT STREQUAL "weak")
    message("${said}")
    return()
  endif()
  if(NOT status EQUAL 0 AND NOT (status EQUAL 3 AND EXPECT STREQUAL "weak"))
    message(FATAL_ERROR "seed ${seed}: status ${status}\n${said}")
  endif()
endforeach()
if(EXPECT STREQUAL "weak")
  message(FATAL_ERROR "the simulator is stronger than what is promised, with each of ${SEEDS} seeds:\n${said}")
endif()
