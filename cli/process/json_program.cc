#include "cli/process/json_program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "cli/process/child_process.h"
#include "cli/process/line_reader.h"
#include "cli/process/log_tail.h"
#include "cli/process/signal_source.h"
#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/json.h"

namespace muster {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostLineBytes = 64 << 20;  // results are shorter

// The error that the program left on standard error, or "".
std::string LastWords(const std::string& log) {
  if (std::string error = LastError(log); !error.empty()) return error;
  const std::vector<std::string> lines = LastLines(log, 1);
  return lines.empty() ? "" : lines.back();
}

}  // namespace

std::vector<Json> RunJsonProgram(const std::string& program,
                                 const std::vector<std::string>& arguments, double deadline_s,
                                 const std::vector<std::string>& environment) {
  std::vector<Json> results;
  const auto keep = [&](Json object) {
    results.push_back(std::move(object));
    return true;
  };
  StreamJsonProgram({.program = program, .arguments = arguments, .environment = environment},
                    deadline_s, keep);
  return results;
}

void StreamJsonProgram(ChildOptions program, double deadline_s,
                       const std::function<bool(Json object)>& on_object, SignalSource* signals) {
  const std::string name = std::filesystem::path(program.program).filename().string();
  const UniqueFd errors(::memfd_create("muster-program-errors", MFD_CLOEXEC));
  if (!errors.valid()) throw Error(ExitCode::kFailure, "cannot create a file in memory");
  program.log_path = fmt::format("/proc/self/fd/{}", errors.get());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ExitCode::kFailure, "cannot create a pipe");
  LineReader reader{UniqueFd(ends[0]), kMostLineBytes};
  UniqueFd write_end(ends[1]);
  program.output_fd = write_end.get();
  ChildProcess child(program);
  write_end.Reset();
  bool any = false, wanted = true;
  std::string said;  // its last line that is not an object
  const auto on_line = [&](const std::string& line) {
    Json json = ParseJson(line);
    if (json.is_object()) {
      any = true;
      wanted = wanted && on_object(std::move(json));
    } else if (!line.empty()) {
      said = line;
    }
  };
  const auto deadline = Clock::now() + std::chrono::duration<double>(deadline_s);
  std::optional<ChildEnd> end;
  for (int ready = 1; !end || ready != 0;) {
    if (!end) end = child.CheckEnd();  // before reading, so that the last read gets everything
    pollfd request{.fd = reader.fd(), .events = POLLIN};
    ready = ::poll(&request, 1, end ? 0 : 2);
    if (ready > 0) reader.Read(on_line);
    if (!wanted) return;
    if (signals != nullptr) signals->ThrowIfStopped(" before there was a result");
    if (Clock::now() >= deadline) {
      throw Error(ExitCode::kDeadline, "{} did not end within {} s", name, deadline_s);
    }
  }
  if (!end->by_signal && end->value == 0 && any) return;
  const auto code = end->by_signal    ? ExitCode::kProcessDied
                    : end->value != 0 ? static_cast<ExitCode>(end->value)
                                      : ExitCode::kFailure;
  // An error line of a Muster program is complete. How the program ended adds nothing.
  const std::string error = LastError(program.log_path);
  if (!end->by_signal && end->value != 0 && !error.empty()) throw Error(code, error);
  if (const std::string words = LastWords(program.log_path); !words.empty()) said = words;
  throw Error(code, "{} {}{}", name,
              end->by_signal    ? fmt::format("was killed by signal {}", end->value)
              : end->value != 0 ? fmt::format("ended with exit code {}", end->value)
                                : std::string("printed no result"),
              said.empty() ? "" : ": " + said);
}

}  // namespace muster
