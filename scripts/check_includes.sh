#!/bin/sh
# Checks which folder may include which (docs/DESIGN.md), and that no two types share a name. Prints
# each finding; exit code 1 if there is one. Usage: scripts/check_includes.sh [ROOT]
cd "${1:-$(dirname "$0")/..}" || exit 2
status=0

# deny FOLDER PATTERN [EXCEPT]: no file below FOLDER includes what matches PATTERN.
deny() {
  found=$(grep -rnE --include='*.h' --include='*.cc' --include='*.cu' \
    "^#include [<\"]($2)" "$1" | grep -vE "^(${3:-nothing})")
  if [ -n "$found" ]; then
    echo "not allowed in $1: $2"
    echo "$found" | sed 's/^/    /'
    status=1
  fi
}

deny common '(ps|worker|cli|tests|bench)/'
deny ps '(worker|cli|tests|bench)/'
deny cli '(ps|tests|bench)/'
# One reader of data files for the workers and for the tools that make and check data sets.
deny cli 'worker/' 'cli/data/.*worker/(data|image)/'
deny worker '(ps|cli|tests|bench)/'
deny worker/client 'worker/(nn|data|backend|trainer)/'
deny worker/nn 'worker/(client|data|trainer|backend/cpu|backend/cuda)/'
deny worker/data 'worker/(client|nn|backend|trainer)/'
deny worker/image 'worker/(client|nn|data|backend|trainer)/'
deny worker/backend 'worker/(client|nn|data|trainer)/'
deny worker/trainer 'worker/backend/(cpu|cuda)/'
# The oracle must not share the mistakes of what it checks.
deny tests/oracle '(ps|worker/(client|trainer)|common/transport|cli)/'
for folder in common ps worker cli; do
  deny $folder 'zmq' 'common/transport/zmq/'
  deny $folder '(oneapi/dnnl|dnnl)' 'worker/backend/cpu/'
  deny $folder '(jpeglib|jerror|spng)' 'worker/image/'
  deny $folder '(cuda|cudnn|cublas)' 'worker/backend/cuda/'
done
# Networks and devices know no protobuf, and neither do plans.
for folder in common/base common/graph common/plan worker/nn worker/backend worker/image; do
  deny $folder '(proto/|google/protobuf)'
done
# The launcher sends and receives nothing.
deny cli 'common/transport/'
# What takes seconds to compile is included in one place; all others use our front of it.
for folder in common ps worker cli bench; do
  deny $folder 'spdlog/' 'common/base/log\.cc'
  deny $folder 'CLI/' '(common/base/program_options\.cc|cli/commands/)'
  deny $folder 'regex>'
  deny $folder 'fmt/(ranges|format|chrono)\.h'
done
# ThreadSanitizer is told there where a region ends, and where one of oneDNN's does.
found=$(grep -rnE --include='*.h' --include='*.cc' '#pragma omp parallel|\.execute\((dnn\.)?stream' worker common ps |
  grep -vE '^worker/backend/cpu/(team|onednn)\.h')
if [ -n "$found" ]; then
  echo "OpenMP's regions are in worker/backend/cpu/team.h, oneDNN's primitives are run by OneDnn::Run"
  echo "$found" | sed 's/^/    /'
  status=1
fi
# Generated wire code stops at the links, the server loop and the client.
for folder in worker/nn worker/data worker/backend cli; do
  deny $folder 'proto/wire'
done
# No circle of folders, and no two types of one name.
if command -v python3 >/dev/null; then
  scripts/include_graph.py >/dev/null || { scripts/include_graph.py | sed -n '/^A circle/,$p'; status=1; }
  scripts/check_names.py || status=1
else
  echo "not checked without python3: circles of folders, types of one name"
fi
exit $status
