# A copy of a source with a mistake in it: cmake -DSOURCE= -DRESULT= -DFROM= -DTO= -P mutate.cmake
# Fails if the text is not there once: then somebody has changed it, and has to look at the mistake as well.
file(READ "${SOURCE}" text)
string(FIND "${text}" "${FROM}" first)
string(FIND "${text}" "${FROM}" last REVERSE)
if(first EQUAL -1 OR NOT first EQUAL last)
  message(FATAL_ERROR "${SOURCE}: expected once, for a mistake that tests/protocol makes there: ${FROM}")
endif()
string(REPLACE "${FROM}" "${TO}" text "${text}")
file(WRITE "${RESULT}" "${text}")
