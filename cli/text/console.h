// Standard output as the launcher needs it: it never blocks, and it may go away.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"

namespace muster {

// Permanent lines, and on a terminal one live line below them that is drawn again and again.
// What cannot be written at once is kept, up to a bound, and written when poll_fd() is writable:
// a pager that reads nothing, or a terminal that was stopped, must not stop the supervision. Used
// by one thread. A reader that is gone (EPIPE) or a full disk turns all output into nothing.
class Console {
 public:
  explicit Console(int fd);  // not owned
  ~Console();                // takes the live line away; waits up to a second for what is pending

  bool is_terminal() const { return terminal_; }
  int Width() const;  // columns of the terminal, less one: a full line would wrap

  // A newline is added. Of what names and values have in them, nothing reaches the terminal raw:
  // see Shown.
  void Print(std::string_view line);
  void PrintAsIs(std::string_view line);  // with colors, or for another program
  void SetLive(std::string line);         // no effect where the output is no terminal
  void ClearLive() { SetLive(""); }

  int poll_fd() const { return pending_.empty() || closed_ ? -1 : output_fd(); }
  void WritePending();         // without waiting
  void Flush(double seconds);  // waits at most so long
  // For a command whose output is its result: waits at most so long, then throws muster::Error
  // (kFailure) if something could not be written. A reader that is gone wanted no more.
  void Finish(double seconds);
  // Something that was printed has not been written.
  bool cut() const { return !pending_.empty() || dropped_lines_ > 0; }
  // Nothing more can be written …
  bool closed() const { return closed_; }
  // … since its reader is gone (""), or else why.
  std::string trouble() const;

 private:
  int output_fd() const { return reopened_.valid() ? reopened_.get() : fd_; }
  void Queue(std::string_view text);
  void DrawLive();

  int fd_;
  bool terminal_;
  UniqueFd reopened_;
  bool closed_ = false;
  int error_ = 0;  // why it is closed
  std::string pending_;
  size_t dropped_lines_ = 0;
  std::string live_;         // what the live line should say
  bool live_shown_ = false;  // something of it is on the screen
  bool live_stale_ = false;  // it says something older
};

// These write a command's result to standard output: all of it, or they throw Error(kFailure). Each
// line is made printable, but not cut. False: whoever read it is gone.
bool PrintResult(std::string_view line);
bool PrintResult(const std::vector<std::string>& lines);
bool PrintResultAsIs(std::string_view text);  // with colors, or for another program

// Writes to standard error, waiting at most a second. Each line is made printable and cut to a
// length that a person may read; lines after the first are indented by two spaces: see ShownLines.
void PrintError(std::string_view text);

}  // namespace muster
