#include "cli/view/convert_svg.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/file.h"

namespace muster {

std::string ConvertSvg(const std::string& svg, const std::string& format) {
  constexpr std::chrono::seconds kLongest{60};
  const std::string program = ProgramInPath("rsvg-convert");
  if (program.empty()) {
    throw Error(ExitCode::kUsage,
                "rsvg-convert, which makes .png and .pdf files, is not in PATH: install it (Debian "
                "and Ubuntu: librsvg2-bin, Fedora: librsvg2-tools), or write a .svg file");
  }
  const HeldFile input = HeldFile::OfText(svg);
  const UniqueFd output(::memfd_create("muster-picture", MFD_CLOEXEC));
  if (!output.valid()) throw Error(ExitCode::kFailure, "cannot create a file in memory");
  std::vector<std::string> arguments{"--format", format};
  if (format == "png") arguments.insert(arguments.end(), {"--zoom", "3"});
  ChildProcess child({.program = program,
                      .arguments = arguments,
                      .input_path = input.path(),
                      .output_fd = output.get(),
                      .error_fd = STDERR_FILENO});
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  std::optional<ChildEnd> end;
  while (!(end = child.CheckEnd())) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw Error(ExitCode::kDeadline, "{} did not end within {} s", program, kLongest.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::string picture = ReadFileIfThere(fmt::format("/proc/self/fd/{}", output.get()));
  if (!end->by_signal && end->value == 0 && !picture.empty()) return picture;
  throw Error(ExitCode::kFailure, "{}{}", program,
              end->by_signal ? fmt::format(" was killed by signal {}", end->value)
                             : fmt::format(" made no picture: exit code {}", end->value));
}

}  // namespace muster
