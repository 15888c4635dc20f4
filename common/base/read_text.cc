#include "common/base/read_text.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "common/base/plain_file.h"
#include "common/base/resource_limits.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

// Waits until the pipe has something, or its writer has gone.
void Await(int fd, const std::string& path, double patience_s) {
  pollfd request{.fd = fd, .events = POLLIN};
  int ready = 0;
  do {
    ready = ::poll(&request, 1, static_cast<int>(patience_s * 1000));
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return;
  throw Error(ExitCode::kUsage, "{}: nothing came for {:g} s: is it a pipe that nobody writes to?",
              path, patience_s);
}

}  // namespace

std::string ReadFileIfThere(const std::string& path) {
  std::ostringstream text;
  try {
    text << ReadPlainFile(path).rdbuf();
  } catch (const Error&) {  // a folder, a pipe or a device has its name
  }
  return text.str();
}

std::string ReadTextFile(const std::string& path, const ReadTextOptions& options) {
  constexpr size_t kBlock = 1 << 16;
  // Not waiting for a writer, should it be a pipe.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) {
    throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, ErrorText(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ExitCode::kUsage, "{}: is a directory, expected a file", path);
  }
  const bool may_wait = !S_ISREG(status.st_mode);
  std::string text;
  for (size_t size = 0; size <= options.most_bytes;) {
    if (may_wait) Await(fd.get(), path, options.patience_s);
    text.resize(size + kBlock);
    const ssize_t n = ::read(fd.get(), text.data() + size, kBlock);
    const int error = errno;
    text.resize(size += static_cast<size_t>(n > 0 ? n : 0));
    if (n == 0) return text;
    if (n > 0 || error == EINTR || (error == EAGAIN && may_wait)) continue;
    if (error == EAGAIN) Await(fd.get(), path, options.patience_s);  // a file of the kernel's
    if (error != EAGAIN) {
      throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, ErrorText(error));
    }
  }
  throw Error(ExitCode::kUsage, "{}: larger than {} MiB: is it a text?", path,
              options.most_bytes >> 20);
}

}  // namespace muster
