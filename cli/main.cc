#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <string_view>

#include "cli/commands/command_line.h"
#include "common/base/resource_limits.h"

namespace {

// A program may be started with standard descriptors closed. The next file that is opened would
// then become its standard output.
void OpenStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) ::_exit(1);
  }
}

// OpenMP's threads look for work before they sleep: libgomp's default is for milliseconds, and
// where others use the same cores each of a step's barriers costs a time slice (272 ms a step
// instead of 6, measured beside two busy processes). A look of some 10 µs is as fast on idle cores.
// The workers inherit it; what the user has set stays.
void BoundOpenMpSpinning() {
  if (::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv("GOMP_SPINCOUNT", "10000", 0);
}

// SIGUSR1 asks for a checkpoint: schedulers may send it to every process of a job at any time, also
// while nothing can be kept yet. The job's processes inherit it, until they take it themselves.
void IgnoreRequestsForCheckpoints() { ::signal(SIGUSR1, SIG_IGN); }

}  // namespace

int main(int argc, char** argv) {
  OpenStandardDescriptors();
  muster::IgnoreFileSizeSignal();
  const std::string_view command = argc < 2 ? "" : argv[1];
  if (command == "launch" || command == "server") IgnoreRequestsForCheckpoints();
  // The command of `muster gpus run` gets the environment as it is.
  if (command != "gpus") BoundOpenMpSpinning();
  return muster::RunCommandLine(argc, argv);
}
