# A generated page must be what the program prints now.
execute_process(COMMAND ${PROGRAM} help --markdown OUTPUT_VARIABLE now RESULT_VARIABLE status)
file(READ ${FILE} written)
if(NOT status EQUAL 0 OR NOT "${now}" STREQUAL "${written}")
  message(FATAL_ERROR "${FILE} is out of date; `make docs` writes it")
endif()
