// One log line format for all processes: time, process, level, message. Lines go to standard
// error, which the launcher sends to the run directory's log files.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace muster {

// Names this process in its log lines: "server", "worker-3". Call once, at the start of main.
void InitLog(const std::string& process);

}  // namespace muster
