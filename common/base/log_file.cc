#include "common/base/log_file.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>

namespace muster {

bool AlsoLogTo(const std::string& path) {
  struct stat terminal {
  }, file{};
  if (::stat(path.c_str(), &file) == 0) {
    if (!S_ISREG(file.st_mode)) return false;  // opening a pipe would wait
    const bool same = ::fstat(STDERR_FILENO, &terminal) == 0 && terminal.st_dev == file.st_dev &&
                      terminal.st_ino == file.st_ino;
    if (same) return true;
  }
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_pattern(kLogPattern);
    spdlog::default_logger()->sinks().push_back(std::move(sink));
    return true;
  } catch (const spdlog::spdlog_ex&) {
    return false;
  }
}

}  // namespace muster
