#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <string_view>

#include "cli/commands/command_line.h"
#include "common/base/resource_limits.h"

namespace {

// If this program is started with standard descriptors closed, the next file that it opens would
// become its standard output.
void OpenStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) ::_exit(1);
  }
}

// OpenMP's threads spin before they sleep, with libgomp's default for milliseconds. If other
// processes use the same cores, each barrier of a step then costs a time slice (beside two busy
// processes, a step took 272 ms instead of 6). Spinning for about 10 µs is as fast on idle cores.
// The workers inherit the setting. The user's own settings take precedence.
void BoundOpenMpSpinning() {
  if (::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv("GOMP_SPINCOUNT", "10000", 0);
}

// SIGUSR1 requests a checkpoint. Schedulers may send it to every process of a job at any time, even
// before there is anything to save. The job's processes inherit this until they install a handler.
void IgnoreRequestsForCheckpoints() { ::signal(SIGUSR1, SIG_IGN); }

}  // namespace

int main(int argc, char** argv) {
  OpenStandardDescriptors();
  muster::IgnoreFileSizeSignal();
  const std::string_view command = argc < 2 ? "" : argv[1];
  if (command == "launch" || command == "server" || command == "worker")
    IgnoreRequestsForCheckpoints();
  // `muster gpus run` passes its environment on unchanged.
  if (command != "gpus") BoundOpenMpSpinning();
  return muster::RunCommandLine(argc, argv);
}
