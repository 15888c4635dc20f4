// Standard output for the launcher: never blocks, and tolerates a reader that goes away.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"

namespace muster {

// Prints permanent lines and, on a terminal, one live line below them that is redrawn. Output that
// cannot be written at once is buffered, up to a limit, and written when poll_fd() is writable, so
// that a stopped terminal or an idle pager cannot block the supervisor. Used by one thread. While
// the disk is full, output is buffered; after any other error, such as EPIPE, it is dropped.
class Console {
 public:
  explicit Console(int fd);  // not owned
  ~Console();                // removes the live line; waits up to a second for pending output

  bool is_terminal() const { return terminal_; }
  int Width() const;  // columns of the terminal, less one because a full line would wrap

  // Adds a newline. Escapes control characters: see Shown.
  void Print(std::string_view line);
  // On a terminal, breaks the line between words. Not for commands, which users copy.
  void PrintRow(const std::string& line);
  void PrintAsIs(std::string_view line);  // for colors or the input of another program
  void SetLive(std::string line);         // no effect unless the output is a terminal
  void ClearLive() { SetLive(""); }

  int poll_fd() const { return pending_.empty() || error_ != 0 ? -1 : output_fd(); }
  void WritePending();  // without waiting
  void Flush(double seconds);
  // Call this if the output of a command is its result. Waits up to `seconds`, then throws
  // Error(kFailure) if some output could not be written. A reader that has gone away is not an
  // error.
  void Finish(double seconds);
  // Whether some printed output has not been written.
  bool cut() const { return !pending_.empty() || dropped_lines_ > 0; }
  // Whether nothing more can be written.
  bool closed() const { return closed_; }
  // Why writing failed; "" if it did not, or if the reader has gone away.
  std::string trouble() const;

 private:
  int output_fd() const { return reopened_.valid() ? reopened_.get() : fd_; }
  void Queue(std::string_view text);
  void DrawLive();

  int fd_;
  bool terminal_;
  UniqueFd reopened_;
  bool closed_ = false;
  int error_ = 0;  // the errno of the last write
  std::string pending_;
  size_t dropped_lines_ = 0;
  std::string live_;         // the wanted text of the live line
  bool live_shown_ = false;  // a live line is on the screen
  bool live_stale_ = false;  // the screen shows an older text
};

// The columns of standard output if it is a terminal, otherwise no limit.
int ResultWidth();

// These functions write a command's result to standard output. They write all of it or throw
// Error(kFailure). Each line is made printable, but not truncated. They return false if the reader
// has gone away.
bool PrintResult(std::string_view line);
bool PrintResult(const std::vector<std::string>& lines);
bool PrintRows(const std::vector<std::string>& lines);  // see Console::PrintRow
bool PrintResultAsIs(std::string_view text);  // for colors or the input of another program

// Writes to standard error, waiting at most a second. Makes each line printable and truncates it to
// a readable length. Indents lines after the first by two spaces: see ShownLines.
void PrintError(std::string_view text);

}  // namespace muster
