#include <fcntl.h>
#include <unistd.h>

#include "launch/command_line.h"

namespace {

// A program may be started with standard descriptors closed. The next file that is opened would
// then become its standard output.
void OpenStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) ::_exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardDescriptors();
  return muster::RunCommandLine(argc, argv);
}
