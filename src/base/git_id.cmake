# Writes the commit of SOURCE to OUT if it changed, to avoid needless rebuilds.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE id ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR id STREQUAL "")
  set(id unknown)
endif()
set(text "#define LOCKSTEP_GIT_ID \"${id}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT "${text}" STREQUAL "${old}")
  file(WRITE ${OUT} "${text}")
endif()
