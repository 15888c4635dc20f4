# Writes cuda_sources.h: a hash of the CUDA backend's sources and of all headers that it shares with
# the
# worker, compared by programs and plugin. cmake -DOUTPUT=FILE -DFOLDER=SOURCES "-DFILES=a b" -P
# FILE
separate_arguments(FILES)
set(all "")
foreach(file ${FILES})
  file(SHA256 ${FOLDER}/${file} hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUTPUT} "namespace muster {\nconstexpr const char* kCudaSources = \"${hash}\";\n}\n")
