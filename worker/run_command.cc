#include "worker/run_command.h"

#include <csignal>
#include <exception>
#include <new>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/resource_limits.h"

namespace muster {

int RunCommand(const std::string& name, const std::function<void()>& work) {
  std::signal(SIGPIPE, SIG_IGN);
  // schedulers send SIGUSR1 to every process of a job; only the server handles it
  std::signal(SIGUSR1, SIG_IGN);
  IgnoreFileSizeSignal();
  KeepFreedMemory();
  InitLog(name);
  try {
    work();
    return 0;
  } catch (const Error& error) {
    if (error.code() == ExitCode::kOk) {
      LogInfo("{}", error.what());
    } else {
      LogError("exit code {}: {}", static_cast<int>(error.code()), error.what());
    }
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    LogError("out of memory: use a smaller batch or fewer workers");
  } catch (const std::exception& error) {
    LogError("{}", error.what());
  }
  return static_cast<int>(ExitCode::kFailure);
}

}  // namespace muster
