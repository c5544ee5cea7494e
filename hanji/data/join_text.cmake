# Joins the project's sources and docs, in byte order of their paths, into one text:
#   cmake -DROOT=<repository> -DOUT=<file> -P join_text.cmake
# and writes OUT.h, which names it and its checksum: a compiler cache sees no file that the assembler
# reads. Both are touched only when their content changes, so running this at every build costs no
# rebuild.
file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${ROOT}
     ${ROOT}/hanji/*.h ${ROOT}/hanji/*.cpp ${ROOT}/hanji/*.md ${ROOT}/docs/*.md)
file(GLOB readme RELATIVE ${ROOT} ${ROOT}/README.md)
list(APPEND files ${readme})
list(SORT files COMPARE STRING CASE SENSITIVE ORDER ASCENDING)
execute_process(COMMAND ${CMAKE_COMMAND} -E cat ${files} WORKING_DIRECTORY ${ROOT}
                OUTPUT_FILE ${OUT}.new COMMAND_ERROR_IS_FATAL ANY)
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
file(SHA256 ${OUT} checksum)
file(WRITE ${OUT}.h.new "#define HANJI_EMBEDDED_TEXT \"${OUT}\"\n"
     "#define HANJI_EMBEDDED_TEXT_SHA256 \"${checksum}\"\n")
file(COPY_FILE ${OUT}.h.new ${OUT}.h ONLY_IF_DIFFERENT)
