#!/bin/sh
# Checks which folders include which (docs/DESIGN.md), and that no two types share a name. Prints each
# finding; exit code 1 if there is any. Usage: scripts/check_includes.sh [ROOT]
cd "${1:-$(dirname "$0")/..}" || exit 2
status=0

# deny FOLDER PATTERN [EXCEPT]: reports files below FOLDER that include anything matching PATTERN, except in
# paths that match EXCEPT.
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
# The tools that make and check data sets share the workers' reader of data files.
deny cli 'worker/' 'cli/data/.*worker/(data|image)/'
deny worker '(ps|cli|tests|bench)/'
deny worker/client 'worker/(nn|data|backend|trainer|program)/'
deny worker/follow 'worker/(nn|data|backend|trainer|program)/'
deny worker/program 'worker/(nn|backend|trainer|image)/'
deny client '((ps|cli|proto|tests|bench|worker)/|common/([^p]|plan))'
deny worker/nn 'worker/(client|data|trainer|backend/cpu|backend/cuda)/'
deny worker/data 'worker/(client|nn|backend|trainer)/'
deny worker/image 'worker/(client|nn|data|backend|trainer)/'
deny worker/backend 'worker/(client|nn|data|trainer)/'
deny worker/trainer 'worker/backend/(cpu|cuda)/'
# The oracle must not share the bugs of the code that it checks.
deny tests/oracle '(ps|worker/(client|trainer)|common/transport|cli)/'
for folder in common ps worker cli; do
  deny $folder 'zmq' 'common/transport/zmq/'
  deny $folder '(oneapi/dnnl|dnnl)' 'worker/backend/cpu/'
  deny $folder '(jpeglib|jerror|spng)' 'worker/image/'
  deny $folder '(cuda|cudnn|cublas)' 'worker/backend/cuda/'
done
# Networks, devices and plans do not use protobuf.
for folder in common/base common/graph common/plan worker/nn worker/backend worker/image; do
  deny $folder '(proto/|google/protobuf)'
done
# The launcher does not communicate over a transport.
deny cli 'common/transport/'
# Headers that take seconds to compile are included in one place; all other code uses a wrapper.
for folder in common ps worker cli bench; do
  deny $folder 'spdlog/' 'common/base/log\.cc'
  deny $folder 'CLI/' '(common/base/program_options\.cc|cli/commands/)'
  deny $folder 'regex>'
  deny $folder 'fmt/(ranges|format|chrono)\.h'
done
# Only these files tell ThreadSanitizer where parallel regions of OpenMP and oneDNN end.
found=$(grep -rnE --include='*.h' --include='*.cc' '#pragma omp parallel|\.execute\((dnn\.)?stream' worker common ps |
  grep -vE '^worker/backend/cpu/(team|onednn)\.h')
if [ -n "$found" ]; then
  echo "use worker/backend/cpu/team.h for OpenMP regions, and OneDnn::Run for oneDNN primitives"
  echo "$found" | sed 's/^/    /'
  status=1
fi
# Only the links, the server loop and the client use the generated wire code.
for folder in worker/nn worker/data worker/backend cli; do
  deny $folder 'proto/wire'
done
# There must be no cycle of folders, and no two types with the same name.
if command -v python3 >/dev/null; then
  scripts/include_graph.py >/dev/null || { scripts/include_graph.py | sed -n '/^Cycle/,$p'; status=1; }
  scripts/check_names.py || status=1
else
  echo "not checked, because python3 is missing: cycles of folders, types with the same name"
fi
exit $status
