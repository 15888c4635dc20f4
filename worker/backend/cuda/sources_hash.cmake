# Writes cuda_sources.h with a hash of the CUDA backend's sources and of all headers that it shares
# with the worker. The programs and the plugin compare this hash.
# Usage: cmake -DOUTPUT=FILE -DFOLDER=SOURCES "-DFILES=a b" -P sources_hash.cmake
separate_arguments(FILES)
set(all "")
foreach(file ${FILES})
  file(SHA256 ${FOLDER}/${file} hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUTPUT} "namespace muster {\nconstexpr const char* kCudaSources = \"${hash}\";\n}\n")
