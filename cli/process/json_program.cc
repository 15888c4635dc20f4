#include "cli/process/json_program.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/process/child_process.h"
#include "cli/process/log_tail.h"
#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/json.h"

namespace muster {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

ChildEnd Await(ChildProcess& child, const std::string& name, double deadline_s) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(deadline_s);
  for (;;) {
    if (const std::optional<ChildEnd> end = child.CheckEnd()) return *end;
    if (Clock::now() >= deadline) {
      throw Error(ExitCode::kDeadline, "{} did not end within {} s", name, deadline_s);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

std::vector<Json> RunJsonProgram(const std::string& program,
                                 const std::vector<std::string>& arguments, double deadline_s,
                                 const std::vector<std::string>& environment) {
  const std::string name = std::filesystem::path(program).filename().string();
  const UniqueFd output(::memfd_create("muster-program-output", MFD_CLOEXEC));
  if (!output.valid()) throw Error(ExitCode::kFailure, "cannot make a memfd");
  const std::string path = fmt::format("/proc/self/fd/{}", output.get());
  ChildProcess child(
      {.program = program, .arguments = arguments, .log_path = path, .environment = environment});
  const ChildEnd end = Await(child, name, deadline_s);
  std::vector<Json> results;
  std::string said;
  std::ifstream text(path);
  for (std::string line; std::getline(text, line);) {
    Json json = ParseJson(line);
    if (json.is_object()) {
      results.push_back(std::move(json));
    } else if (!line.empty()) {
      said = line;
    }
  }
  if (!end.by_signal && end.value == 0 && !results.empty()) return results;
  if (const std::string error = LastError(path); !error.empty()) said = error;
  const auto code =
      !end.by_signal && end.value != 0 ? static_cast<ExitCode>(end.value) : ExitCode::kFailure;
  throw Error(code, "{} {}{}", name,
              end.by_signal    ? fmt::format("was killed by signal {}", end.value)
              : end.value != 0 ? fmt::format("ended with exit code {}", end.value)
                               : std::string("printed no result"),
              said.empty() ? "" : ": " + said);
}

}  // namespace muster
