#include "cli/job/program_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/file.h"

namespace muster {
namespace {

constexpr int64_t kMostBytes = 256 << 10;  // at a time
constexpr size_t kMostLine = 64 << 10;

int64_t SizeOf(const std::string& path) {
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  return missing ? 0 : static_cast<int64_t>(size);
}

// "2026-01-31 12:00:05.123 worker-0 info: …" (common/base/log.h)
bool IsOfHelper(std::string_view line) {
  constexpr size_t kTime = 24;
  return line.size() > kTime && std::isdigit(static_cast<unsigned char>(line[0])) != 0 &&
         line[4] == '-' && line[kTime - 1] == ' ' && line.substr(kTime).starts_with("worker-");
}

// Without colors, which are for a terminal that the program does not have, and without tabs and
// backspaces, which the console would escape.
std::string PlainLine(const std::string& line) {
  constexpr size_t kTab = 8;
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line.compare(i, 2, "\x1b[") == 0) {
      for (i += 2; i < line.size() && std::isalpha(static_cast<unsigned char>(line[i])) == 0;) ++i;
    } else if (line[i] == '\t') {
      plain.append(kTab - plain.size() % kTab, ' ');
    } else if (line[i] != '\b') {
      plain += line[i];
    } else if (!plain.empty()) {
      plain.pop_back();
    }
  }
  return plain;
}

}  // namespace

ProgramOutput::ProgramOutput(std::string log_path)
    : log_path_(std::move(log_path)), shown_(SizeOf(log_path_)) {}

void ProgramOutput::Show(Console& console, bool ended) {
  if (log_path_.empty()) return;
  const int64_t size = SizeOf(log_path_);
  if (size < shown_) shown_ = 0;  // begun anew
  if (size - shown_ > kMostBytes) {
    const int64_t skipped = size - shown_ - kMostBytes;
    console.Print(fmt::format("... {} only in {}", FormatBytes(static_cast<double>(skipped)),
                              std::filesystem::path(log_path_).filename().string()));
    partial_.clear();
    shown_ += skipped;
  }
  if (size > shown_) {
    std::string text(static_cast<size_t>(size - shown_), '\0');
    try {
      std::ifstream file = ReadPlainFile(log_path_);
      file.seekg(shown_);
      file.read(text.data(), static_cast<std::streamsize>(text.size()));
      text.resize(static_cast<size_t>(file.gcount()));
    } catch (const Error&) {  // it is no plain file any more
      return;
    }
    shown_ += static_cast<int64_t>(text.size());
    partial_ += text;
  }
  size_t begin = 0;
  for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    Print(partial_.substr(begin, end - begin), console);
  }
  partial_.erase(0, begin);
  if (partial_.empty() || (!ended && partial_.size() < kMostLine)) return;
  Print(std::exchange(partial_, ""), console);
}

void ProgramOutput::Print(std::string line, Console& console) const {
  while (line.ends_with('\r')) line.pop_back();
  line.erase(0, line.rfind('\r') + 1);  // the last state of a progress bar
  if (!IsOfHelper(line)) console.Print(PlainLine(line));
}

}  // namespace muster
