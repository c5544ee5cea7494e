# Joins the project's sources and docs, in byte order of their paths, into one text:
#   cmake -DROOT=<repository> -DOUT=<file> -P join_text.cmake
# OUT is touched only when its content changes, so running this at every build costs no rebuild.
file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${ROOT}
     ${ROOT}/hanji/*.h ${ROOT}/hanji/*.cpp ${ROOT}/hanji/*.md ${ROOT}/docs/*.md)
file(GLOB readme RELATIVE ${ROOT} ${ROOT}/README.md)
list(APPEND files ${readme})
list(SORT files COMPARE STRING CASE SENSITIVE ORDER ASCENDING)
execute_process(COMMAND ${CMAKE_COMMAND} -E cat ${files} WORKING_DIRECTORY ${ROOT}
                OUTPUT_FILE ${OUT}.new COMMAND_ERROR_IS_FATAL ANY)
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
